#pragma once
// Sums of squares and norms of whole gradients (NUMERICS.md, rule 19), in binary64 throughout. Each tensor is cut, in
// logical order, into segments of 4096 elements; a segment's sum is that of rule 11 (64 virtual lanes, fma(g, g, acc),
// reduced by halves); the segments' sums are added left to right from +0, tensors in the order given.
#include <span>
#include <vector>

#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// partial: one float64 for each segment of 4096 of the n elements of x.
struct SquareSumsArgs {
  In x;
  Out partial;
  int64_t n;
};
// Takes all tensors at once; threads share their segments.
void square_sums(CpuStream&, std::span<const SquareSumsArgs>);
template <class B>
void square_sums(GpuStream<B>&, std::span<const SquareSumsArgs>);

// Tensors must be float32 or float64 and on one device.
std::vector<double> segment_sums(std::span<const Tensor> tensors);  // of all segments, in order
double square_sum(std::span<const Tensor> tensors);                 // the segments' sums added
double global_norm(std::span<const Tensor> tensors);                // its square root

// Returns the norm of tensors from their segment_sums(), which may come from several processes (tensor/slice.h).
double global_norm(std::span<const double> segment_sums);

}  // namespace elinvar
