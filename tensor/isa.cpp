#include "tensor/isa.h"

#include <hwy/highway.h>

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

int64_t target_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return HWY_AVX3;
    case Isa::avx2:
      return HWY_AVX2;
    case Isa::scalar:
      break;
  }
  return HWY_SCALAR;
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::scalar:
      break;
  }
  return "scalar";
}

std::vector<Isa> available_isas() {
  static const int64_t supported = hwy::SupportedTargets();  // before any limit
  std::vector<Isa> found{Isa::scalar};
  for (Isa isa : {Isa::avx2, Isa::avx512})
    if (supported & target_of(isa)) found.push_back(isa);
  return found;
}

Isa parse_isa(std::string_view name) {
  const std::vector<Isa> isas = available_isas();
  if (name == "auto") return isas.back();
  std::string names;
  for (Isa isa : isas) {
    if (name == name_of(isa)) return isa;
    names += fmt::format(" {}", name_of(isa));
  }
  check(false, "--isa {}: expected auto or one of those this machine has:{}", name, names);
  return Isa::scalar;
}

static Isa& chosen() {
  static Isa isa = available_isas().back();
  return isa;
}

Isa current_isa() { return chosen(); }

void set_isa(Isa isa) {
  const std::vector<Isa> isas = available_isas();
  check(std::find(isas.begin(), isas.end(), isa) != isas.end(), "instruction set {} is not available here",
        name_of(isa));
  chosen() = isa;
  hwy::SetSupportedTargetsForTest(target_of(isa));
  hwy::GetChosenTarget().Update(target_of(isa));
}

}  // namespace elinvar
