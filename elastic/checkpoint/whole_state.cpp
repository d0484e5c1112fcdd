#include "elastic/checkpoint/whole_state.h"

#include "tensor/base/failure.h"

namespace elinvar {

constexpr const char* kStep = "step";  // beside the state's own names, which have dots

StateDict whole_state(StateDict state, int64_t step, const std::optional<Pace>& pace) {
  bool fresh = state.emplace(kStep, Tensor::from(std::vector<int64_t>{step}, {})).second;
  if (pace) fresh = state.emplace(kPace, to_tensor(*pace)).second && fresh;
  invariant(fresh, "the names of step and pace are not the network's");
  return state;
}

}  // namespace elinvar
