#pragma once
// Faults on purpose (elastic/session/chaos.h) that only the worker itself can do, in the step that they are asked for:
// a message of a reduction that is lost although the connection lives, and a bit that flips in what the worker
// computes. For drills alone; each happens once in a process.
#include <optional>
#include <span>
#include <vector>

#include "elastic/session/chaos.h"
#include "tensor/tensor.h"

namespace elinvar {

class SelfSabotage {
 public:
  explicit SelfSabotage(const std::vector<Fault>& faults);  // those that are for others are ignored

  // Whether this message of the reduction of `step` is to be lost. Who asks is worker `id`, and perhaps the leader.
  bool drops(int id, bool leads, int64_t step, const std::string& kind);
  // The reduction of `step` is interrupted, and is made again: whoever leads then loses nothing of it any more.
  void interrupted(int64_t step);
  // Whether any flip is still to come: else nothing need be gathered that one could fall on.
  bool flips_later() const;
  // Flips the bit of a fault of this kind if one is to be: the tensor that it falls on is replaced by a copy with the
  // bit flipped. Returns the number of the bit among those of all tensors.
  std::optional<int64_t> flips(Fault::Flips what, int id, bool leads, int64_t step, std::span<Tensor> tensors);

 private:
  std::optional<Fault> take(Fault::What what, Fault::Flips flips, int id, bool leads, int64_t step);
  std::vector<Fault> faults_;
};

}  // namespace elinvar
