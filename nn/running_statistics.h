#pragma once
// The running statistics of batch norms (NUMERICS.md, rule 20). A forward pass only reports its batch statistics
// (Context::statistics); the step's update moves the running ones towards their mean over all virtual ranks.
//
// A virtual rank contributes for each batch norm two tensors, its batch mean and its unbiased variance
//   term_mean = mean    term_var = var * (n / (n - 1))       n rows as an element; n - 1 is at least 1
// Terms are added over virtual ranks by the tree of the gradients (rule 18, tensor/reduction_tree.h), so they
// travel with them. Then
//   s = sum / n    running = fma(momentum, s, (1 - momentum) * running)
// where n is the number of virtual ranks that had samples: in a short batch, perhaps not all. momentum and 1 - momentum
// are rounded to the element type once.
#include <span>
#include <vector>

#include "nn/network.h"

namespace elinvar {

// Two tensors (C) a statistic: the batch statistics of one virtual rank.
std::vector<Tensor> batch_statistics_of(const std::vector<Statistic>& statistics);

// Updates the buffers that `statistics` (of any virtual rank) names by the sums of the batch statistics of all `n`
// virtual ranks that had samples.
void update_running_statistics(const std::vector<Statistic>& statistics, std::span<const Tensor> sums, int64_t n);

}  // namespace elinvar
