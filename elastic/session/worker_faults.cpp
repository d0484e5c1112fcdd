#include "elastic/session/worker_faults.h"

#include <algorithm>

namespace elinvar {

WorkerFaults::WorkerFaults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults)
    if (by_worker(fault)) faults_.push_back(fault);
}

std::optional<Fault> WorkerFaults::take(const Fault& like, int id, bool leads, int64_t step) {
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.what == like.what && fault.flips == like.flips && fault.at == like.at && fault.step == step + 1 &&
           (fault.worker == 0 ? leads : fault.worker == id);
  });
  if (found == faults_.end()) return std::nullopt;
  const Fault fault = *found;
  faults_.erase(found);
  return fault;
}

bool WorkerFaults::drops(int id, bool leads, int64_t step, const std::string& kind) {
  constexpr std::string_view kKinds[] = {"contribution", "result", "roots", "part", "trailer"};
  if (faults_.empty() || std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds)) return false;
  return take({.what = Fault::What::drop}, id, leads, step).has_value();
}

void WorkerFaults::interrupted(int64_t step) {
  std::erase_if(faults_, [&](const Fault& f) {
    return (f.what == Fault::What::drop && f.step == step + 1) || (f.at && f.worker == 0 && f.step <= step + 1);
  });
}

bool WorkerFaults::dies(Fault::Point at, int id, bool leads, int64_t step) {
  return !faults_.empty() && take({.what = Fault::What::kill, .at = at}, id, leads, step).has_value();
}

std::optional<Fault::Point> WorkerFaults::point_of(const std::string& kind) {
  if (kind == "within") return Fault::Point::within;
  if (kind == "boundary") return Fault::Point::boundary;
  if (kind == "contribution") return Fault::Point::contribute;
  if (kind == "result") return Fault::Point::sum;
  if (kind == "part") return Fault::Point::part;
  if (kind == "trailer") return Fault::Point::trailer;
  if (kind == "value") return Fault::Point::value;
  if (kind == "parameters") return Fault::Point::fetch;
  return std::nullopt;
}

bool WorkerFaults::flips_later() const {
  return std::any_of(faults_.begin(), faults_.end(), [](const Fault& f) { return f.what == Fault::What::flip; });
}

std::optional<int64_t> WorkerFaults::flips(Fault::Flips what, int id, bool leads, int64_t step,
                                           std::span<Tensor> tensors) {
  int64_t bits = 0;
  const auto bits_of = [](const Tensor& tensor) { return tensor.defined() ? 8 * tensor.bytes() : 0; };
  for (const Tensor& tensor : tensors) bits += bits_of(tensor);
  if (faults_.empty() || bits == 0) return std::nullopt;
  const std::optional<Fault> fault = take({.what = Fault::What::flip, .flips = what}, id, leads, step);
  if (!fault) return std::nullopt;
  const int64_t bit = fault->bit % bits;
  int64_t at = bit;
  auto tensor = tensors.begin();
  for (; at >= bits_of(*tensor); ++tensor) at -= bits_of(*tensor);
  Tensor damaged = tensor->to(Device{}).clone();
  static_cast<unsigned char*>(damaged.raw())[at / 8] ^= static_cast<unsigned char>(1u << at % 8);
  *tensor = damaged.to(tensor->device());
  return bit;
}

}  // namespace elinvar
