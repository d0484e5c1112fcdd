#pragma once
// Batch norm over the rows of x (.., C), in four passes (NUMERICS.md, rules 12 and 15).
//
// Statistics of a channel: a leaf of n <= 64 rows has the sum s by a chain from +0, the mean m = s / n, and M2
// by the chain M2 = fma(d, d, M2) with d = x - m; leaves are merged by the adjacent pairwise tree, an odd one
// passing through, with
//   d = mB - mA    w = nB / n    m = fma(d, w, mA)    M2 = (M2A + M2B) + (d * d) * (nA * w)
// and the biased variance is var = M2 / n at the root. Row counts are converted to the element type first.
//
// Factors:     inv = 1 / sqrt(var + eps)    a = gamma * inv    b = fma(-mean, a, beta)
// Forward:     y = fma(x, a, b)    y = y + residual, if any    y = y <= 0 ? +0 : y, if relu
// Gradients:   g = relu and y <= 0 ? +0 : dy         the residual's gradient is g
//              sum_g and sum_gx by rule 12, with the leaf chains s = s + g and
//              t = fma(g, (x - mean) * inv, t);      beta's gradient is sum_g, gamma's is sum_gx
//   training   dx = a * fma(x - mean, -((sum_gx / n) * inv), g - sum_g / n)
//   evaluation dx = g * a
// The mask of a relu without a residual is recomputed from x. With a residual it is read from y, or from a bit of each
// element: bit i % 8 of byte i / 8 is set unless y <= 0, where i counts the elements of a contiguous y.
#include <vector>

#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// Tensors of x's shape have x's type; statistics, factors and sums are float32 if x is bfloat16 (precision.h).

// Batch statistics of each channel (last dimension) of x (.., C); var is biased (divided by count).
struct BatchStatistics {
  Tensor mean, var;   // (C)
  int64_t count = 0;  // rows: elements per channel
  ELINVAR_FIELDS(mean, var, count)
};

struct BatchNormFactors {
  Tensor mean, inv, a, b;  // (C)
  ELINVAR_FIELDS(mean, inv, a, b)
};

enum class ReluMask : uint8_t { none, from_x, from_y, from_bits };
constexpr ReluMask last_of(ReluMask) { return ReluMask::from_bits; }
constexpr int64_t mask_bytes(int64_t elements) { return (elements + 7) / 8; }

// partial: two arrays of C for each block of rows (tensor/leaf_tree.h); GPUs use their own memory. inv.data is null if
// factors are not wanted.
struct BatchStatisticsArgs {
  In x;
  Out mean, var, partial;
  int64_t rows, channels;
  In gamma = {}, beta = {};
  Out inv = {}, a = {}, b = {};
  double eps = 0.0;
};
void batch_statistics(CpuStream&, const BatchStatisticsArgs&);
template <class B>
void batch_statistics(GpuStream<B>&, const BatchStatisticsArgs&);

struct BatchNormFactorsArgs {
  In mean, var, gamma, beta;
  Out inv, a, b;
  int64_t channels;
  double eps;
};
void batch_norm_factors(CpuStream&, const BatchNormFactorsArgs&);
template <class B>
void batch_norm_factors(GpuStream<B>&, const BatchNormFactorsArgs&);

struct BatchNormApplyArgs {
  In x, residual, a, b;  // residual.data may be null
  Out y;
  int64_t rows, channels;
  bool relu;
  Out mask = {};  // bits of y, or null
};
void batch_norm_apply(CpuStream&, const BatchNormApplyArgs&);
template <class B>
void batch_norm_apply(GpuStream<B>&, const BatchNormApplyArgs&);

struct BatchNormSumsArgs {
  In dy, x, y, mean, inv, a, b;   // y may be its bits, as the mask says
  Out sum_g, sum_gx, partial, g;  // g may be dy itself; g.data is null if g is not wanted
  int64_t rows, channels;
  ReluMask mask;
};
void batch_norm_sums(CpuStream&, const BatchNormSumsArgs&);
template <class B>
void batch_norm_sums(GpuStream<B>&, const BatchNormSumsArgs&);

struct BatchNormGradientArgs {
  In dy, x, y, mean, inv, a, b, sum_g, sum_gx;  // sum_g.data is null in evaluation
  Out dx;                                       // may be dy itself
  int64_t rows, channels;
  ReluMask mask;
};
void batch_norm_gradient(CpuStream&, const BatchNormGradientArgs&);
template <class B>
void batch_norm_gradient(GpuStream<B>&, const BatchNormGradientArgs&);

// Checks an input (.., C), which must have elements of type float32, float64 or, on a GPU, bfloat16. Returns C.
int64_t batch_norm_channels(const char* op, const Tensor& x);

// Checks the arguments of the gradient's two steps, and the result y, or its bits, if the mask reads it. Returns the
// factors in the form that kernels read.
BatchNormFactors batch_norm_gradient_operands(const char* op, const Tensor& dy, const Tensor& x, const Tensor& y,
                                              const BatchNormFactors& factors, ReluMask mask);
Tensor relu_mask_operand(const Tensor& y, ReluMask mask);  // what kernels read of y

BatchStatistics batch_statistics(const Tensor& x);

struct NormalizedBatch {
  BatchStatistics statistics;
  BatchNormFactors factors;
  ELINVAR_FIELDS(statistics, factors)
};
// batch_statistics(x), and the factors of it in the same pass, which share its mean.
NormalizedBatch batch_norm_of_batch(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps);

// mean, var, gamma and beta have the shape (C).
BatchNormFactors batch_norm_factors(const Tensor& mean, const Tensor& var, const Tensor& gamma, const Tensor& beta,
                                    double eps);
// `residual` is undefined or has x's shape.
Tensor batch_norm_apply(const Tensor& x, const BatchNormFactors& factors, const Tensor& residual, bool relu);

struct BatchNormMasked {
  Tensor y, mask;  // uint8 (mask_bytes)
  ELINVAR_FIELDS(y, mask)
};
// batch_norm_apply(x, factors, residual, relu = true), and the bits of y. x is not bfloat16, and there is a residual.
BatchNormMasked batch_norm_apply_masked(const Tensor& x, const BatchNormFactors& factors, const Tensor& residual);

struct BatchNormSums {
  Tensor sum_g, sum_gx;  // (C)
  Tensor g;              // x's shape, or undefined if not wanted
  ELINVAR_FIELDS(sum_g, sum_gx, g)
};
// Reads y for ReluMask::from_y, or its bits for from_bits, only. Overwrites a dy that is moved in, by g or dx, if it is
// the only handle on its elements.
BatchNormSums batch_norm_sums(Tensor dy, const Tensor& x, const Tensor& y, const BatchNormFactors& factors,
                              ReluMask mask, bool want_g);
// Returns dx. `sums` is null in evaluation.
Tensor batch_norm_gradient(Tensor dy, const Tensor& x, const Tensor& y, const BatchNormFactors& factors,
                           const BatchNormSums* sums, ReluMask mask);

}  // namespace elinvar
