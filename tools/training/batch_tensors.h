#pragma once
// The tensors of a batch that a network and a task take.
#include "data/loader.h"
#include "nn/network.h"
#include "autograd/loss.h"

namespace elinvar {

// The inputs on a device; indices stay on the CPU, where they are checked before use.
inline Inputs inputs_of(const Batch& batch, Device device) {
  return {batch.input_on(device), batch.further_inputs_on(device)};
}

inline Targets targets_of(const Batch& batch) { return {batch.target, batch.mixed.other, batch.mixed.share}; }

}  // namespace elinvar
