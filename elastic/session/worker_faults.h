#pragma once
// Injected faults (elastic/session/chaos.h) that only the worker itself can carry out: losing a message of a reduction
// although the connection lives, flipping a bit in what the worker computes, and dying at one point of a step. Each
// fault happens once in a process, in the step that it names.
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
  // The reduction of `step` was interrupted and begins again, or the state of an earlier step is restored. Cancels
  // drops of that step, and deaths of the leader up to it, so that its next leader does not lose a message or die too.
  void interrupted(int64_t step);
  // Returns whether worker `id`, which may be the leader, must die at this point of `step`.
  bool dies(Fault::Point at, int id, bool leads, int64_t step);
  // The point of a step that is the first message of this kind; null: none.
  static std::optional<Fault::Point> point_of(const std::string& kind);
  // Returns whether a flip is still to come. If not, the caller need not gather the tensors for flips().
  bool flips_later() const;
  // Flips a bit if a fault of this kind is due: replaces the tensor that holds it by a copy with the bit flipped.
  // Returns the index of the bit, counted through all tensors; null if no fault is due.
  std::optional<int64_t> flips(Fault::Flips what, int id, bool leads, int64_t step, std::span<Tensor> tensors);

 private:
  // Takes the fault out of the list if this worker has one that is like `fault` in this step.
  std::optional<Fault> take(const Fault& like, int id, bool leads, int64_t step);
  std::vector<Fault> faults_;
};

}  // namespace elinvar
