#include "elastic/checkpoint/whole_state.h"

#include "tensor/base/failure.h"

namespace elinvar {

constexpr const char* kStep = "step";  // does not clash with the state's own names, which have dots

StateDict whole_state(StateDict state, int64_t step, const std::optional<ScalingState>& scaling_state) {
  bool fresh = state.emplace(kStep, Tensor::from(std::vector<int64_t>{step}, {})).second;
  if (scaling_state) fresh = state.emplace(kScalingState, to_tensor(*scaling_state)).second && fresh;
  invariant(fresh, "the names of step and scaling state are not the network's");
  return state;
}

}  // namespace elinvar
