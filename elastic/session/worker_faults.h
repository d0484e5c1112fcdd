#pragma once
// Injected faults (elastic/session/chaos.h) that only the worker itself can carry out: losing a message of a reduction
// although the connection lives, and flipping a bit in what the worker computes. Each fault happens once in a process,
// in the step that it names.
#include <optional>
#include <span>
#include <vector>

#include "elastic/session/chaos.h"
#include "tensor/tensor.h"

namespace elinvar {

class WorkerFaults {
 public:
  explicit WorkerFaults(const std::vector<Fault>& faults);  // ignores faults that a worker does not inject

  // Returns whether worker `id`, which may be the leader, must lose this message of the reduction of `step`.
  bool drops(int id, bool leads, int64_t step, const std::string& kind);
  // The reduction of `step` was interrupted and begins again. Cancels drops of that step, so that its next leader
  // does not lose a message too.
  void interrupted(int64_t step);
  // Returns whether a flip is still to come. If not, the caller need not gather the tensors for flips().
  bool flips_later() const;
  // Flips a bit if a fault of this kind is due: replaces the tensor that holds it by a copy with the bit flipped.
  // Returns the index of the bit, counted through all tensors; null if no fault is due.
  std::optional<int64_t> flips(Fault::Flips what, int id, bool leads, int64_t step, std::span<Tensor> tensors);

 private:
  std::optional<Fault> take(Fault::What what, Fault::Flips flips, int id, bool leads, int64_t step);
  std::vector<Fault> faults_;
};

}  // namespace elinvar
