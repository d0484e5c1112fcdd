#pragma once
// An exponential moving average of a network's weights, which is often better than the weights themselves (B. T.
// Polyak, A. B. Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; as used here: C. Szegedy et
// al., arXiv:1512.00567). After step t = 0, 1, ...
//   rate = 1 - min(decay, (1 + t) / (10 + t))        early on, nearly the mean of all weights so far
//   average = average - rate * (average - w)
// This is SGD on |average - w|^2 / 2, and is computed as such (tensor/ops/optimizer.h). Buffers are averaged like
// parameters.
#include <cstdint>
#include <vector>

#include "nn/parameters.h"

namespace elinvar {

// `average` and `parameters` belong to networks of one kind on one device; decay is in [0, 1).
void follow(Parameters& average, const Parameters& parameters, double decay, int64_t step);
// Updates averages of any tensors in place, for example of slices of parameters: each average follows the weights at
// the same index. An element of a slice has the bits that it has in the whole.
void follow(std::vector<Tensor>& averages, const std::vector<Tensor>& weights, double decay, int64_t step);

}  // namespace elinvar
