#include "elastic/self_sabotage.h"

#include <algorithm>
#include <bit>

namespace elinvar {

SelfSabotage::SelfSabotage(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults)
    if (by_worker(fault.what)) faults_.push_back(fault);
}

std::optional<Fault> SelfSabotage::take(Fault::What what, int id, bool leads, int64_t step) {
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.what == what && fault.step == step + 1 && (fault.worker == 0 ? leads : fault.worker == id);
  });
  if (found == faults_.end()) return std::nullopt;
  const Fault fault = *found;
  faults_.erase(found);
  return fault;
}

bool SelfSabotage::drops(int id, bool leads, int64_t step, const std::string& kind) {
  if (faults_.empty() || (kind != "contribution" && kind != "result" && kind != "part" && kind != "trailer"))
    return false;
  return take(Fault::What::drop, id, leads, step).has_value();
}

bool SelfSabotage::flips_later() const {
  return std::any_of(faults_.begin(), faults_.end(), [](const Fault& f) { return f.what == Fault::What::flip; });
}

std::optional<int64_t> SelfSabotage::flips(int id, bool leads, int64_t step, Leaf& leaf) {
  if (faults_.empty() || leaf.gradients.empty()) return std::nullopt;
  const std::optional<Fault> fault = take(Fault::What::flip, id, leads, step);
  if (!fault) return std::nullopt;
  Tensor damaged = leaf.gradients[0].clone();
  const int64_t bit = fault->bit % (32 * damaged.numel());
  float& element = damaged.data<float>()[bit / 32];
  element = std::bit_cast<float>(std::bit_cast<uint32_t>(element) ^ uint32_t{1} << bit % 32);
  leaf.gradients[0] = damaged;
  return bit;
}

}  // namespace elinvar
