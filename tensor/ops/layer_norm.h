#pragma once
// Layer norm and RMS norm of the rows of x (.., C), with n = C (NUMERICS.md, rule 15). Sums along a row follow rule 11
// (fma for products), those over rows rule 12; every other sign below is one rounding. An absent gamma is 1, an absent
// beta 0.
//
// Layer norm    m = sum(x) / n    r = 1 / sqrt(sum((x - m) * (x - m)) / n + eps)    h = (x - m) * r
//               y = fma(h, gamma, beta)
//               g = dy * gamma    dx = r * fma(-h, sum(g * h) / n, g - sum(g) / n)
// RMS norm      r = 1 / sqrt(sum(x * x) / n + eps)    h = x * r
//               y = fma(h, gamma, +0)
//               g = dy * gamma    dx = r * fma(-h, sum(g * h) / n, g)
// Both          dgamma = sum over rows of dy * h (fma)    dbeta = sum over rows of dy
//
// add_norm computes x on the way: it writes x + addend, with one rounding, and normalises that, with the bits of add()
// and a norm of its result.
//
// A row is read once and stays in the first-level cache for its passes; the gradients of gamma and beta are chains of
// 64 rows that grow as these rows are visited.
#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

enum class RowNorm : uint8_t { layer, rms };
constexpr RowNorm last_of(RowNorm) { return RowNorm::rms; }

struct RowNormArgs {
  In x, gamma, beta;  // (rows, cols), (cols), (cols); the last two may be absent
  In addend;          // (rows, cols), added to x first; may be absent
  Out sum;            // (rows, cols), x + addend; absent without addend
  Out y, mean, r;     // (rows, cols), (rows), (rows); RMS norm writes no mean
  int64_t rows, cols;
  double eps;
  RowNorm kind;
};
void row_norm(CpuStream&, const RowNormArgs&);
template <class B>
void row_norm(GpuStream<B>&, const RowNormArgs&);

struct RowNormBackwardArgs {
  In dy, x, gamma, mean, r;
  In sum;       // GPUs only: dx is added to it; may be absent
  Out dx;       // absent if not wanted; may be dy itself, or sum
  Out partial;  // (leaves of 64 rows, 2, cols): chains of dgamma and dbeta; absent if not wanted
  int64_t rows, cols;
  RowNorm kind;
};
void row_norm_backward(CpuStream&, const RowNormBackwardArgs&);
template <class B>
void row_norm_backward(GpuStream<B>&, const RowNormBackwardArgs&);

struct RowNormResult {
  Tensor y, mean, r;  // the gradient needs mean and r
  ELINVAR_FIELDS(y, mean, r)
};
// x (.., C), C > 0, is float32, float64 or, on a GPU, bfloat16, for which mean and r are float32; gamma and beta are
// (C) or undefined. y has the type `result`: x's, or bfloat16 if x is float32 on a GPU.
RowNormResult layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, DType result);
RowNormResult rms_norm(const Tensor& x, const Tensor& gamma, double eps, DType result);
inline RowNormResult layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return layer_norm(x, gamma, beta, eps, x.dtype());
}
inline RowNormResult rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
  return rms_norm(x, gamma, eps, x.dtype());
}

struct AddNormResult {
  Tensor sum;
  RowNormResult norm;
  ELINVAR_FIELDS(sum, norm)
};
// Returns x + addend and its layer_norm or rms_norm (without beta), in one pass over memory. addend is like x, or
// bfloat16 if x is float32; the sum has x's type.
AddNormResult add_norm(RowNorm kind, const Tensor& x, const Tensor& addend, const Tensor& gamma, const Tensor& beta,
                       double eps, DType result);

struct RowNormGradients {
  Tensor dx, dgamma, dbeta;  // undefined where not wanted
  ELINVAR_FIELDS(dx, dgamma, dbeta)
};
// `saved` is the result of the forward pass; its y is not read and may be undefined. dx has x's type. With `sum`, like
// x (the gradient of a residual, for example), dx is sum + dx, with the bits of a separate addition. A sum, or without
// one a dy, of x's type is overwritten if it is moved in and the only handle on its elements.
RowNormGradients row_norm_backward(RowNorm kind, Tensor dy, const Tensor& x, const Tensor& gamma,
                                   const RowNormResult& saved, bool want_dx, bool want_parameters, Tensor sum = {});

}  // namespace elinvar
