#pragma once
// Experts in published weights. Mixtral's files have tensors of each expert, where this engine has one of all experts:
//
//   model.layers.0.block_sparse_moe.experts.3.w1.weight    (out, in) there
//   model.layers.0.block_sparse_moe.experts.w1.weight      (experts, in, out) here
#include "tensor/state.h"

namespace elinvar {

// Returns the weights with tensors of each expert, which are views.
StateDict with_separate_experts(StateDict weights);

// Returns the weights with one tensor of all experts. Experts whose numbers do not begin at 0 or have a gap, and those
// of different shapes or types, stay separate.
StateDict with_joined_experts(StateDict weights);

}  // namespace elinvar
