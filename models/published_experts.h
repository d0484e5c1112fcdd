#pragma once
// Experts in published weights. Mixtral's files have tensors of each expert, where this engine has one of all experts:
//
//   model.layers.0.block_sparse_moe.experts.3.w1.weight    (out, in) there
//   model.layers.0.block_sparse_moe.experts.w1.weight      (experts, in, out) here
#include "tensor/state.h"

namespace elinvar {

// Returns the weights with one tensor for each expert. These tensors are views.
StateDict with_separate_experts(StateDict weights);

// Returns the weights with one tensor for all experts. Throws Failure if an expert is missing, or if experts differ in
// shape or type. Where there is a tensor of all experts already, separate ones are left as they are.
StateDict with_joined_experts(StateDict weights);

}  // namespace elinvar
