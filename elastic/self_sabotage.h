#pragma once
// Faults on purpose (elastic/chaos.h) that only the worker itself can do, in the step that they are asked for: a
// message of a reduction that is lost although the connection lives, and a bit that flips in a leaf's gradient. For
// drills alone; each happens once in a process.
#include <optional>
#include <vector>

#include "elastic/chaos.h"
#include "elastic/step.h"

namespace elinvar {

class SelfSabotage {
 public:
  explicit SelfSabotage(const std::vector<Fault>& faults);  // those that are for others are ignored

  // Whether this message of the reduction of `step` is to be lost. Who asks is worker `id`, and perhaps the leader.
  bool drops(int id, bool leads, int64_t step, const std::string& kind);
  bool flips_later() const;  // whether any flip is still to come
  // Flips the bit in the leaf's first gradient if that is to be; the number of the bit.
  std::optional<int64_t> flips(int id, bool leads, int64_t step, Leaf& leaf);

 private:
  std::optional<Fault> take(Fault::What what, int id, bool leads, int64_t step);
  std::vector<Fault> faults_;
};

}  // namespace elinvar
