#pragma once
// Updates of parameters p from their gradients g, in one pass over memory (LAMB: two), by the expression lists below
// (NUMERICS.md, rule 21): each sign is one rounding, and fma(a, b, c) has one for both operations. The numbers in an
// argument struct are computed on the host in double and passed as float32. Every update begins with g = gradient *
// scale, where scale carries the factor of clipping.
#include <span>
#include <vector>

#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// SGD as in PyTorch (momentum without dampening), and LARS (You et al., arXiv:1708.03888) with its ratio:
//   d = ratio * fma(weight_decay, p, g)
//   v = fma(momentum, v, d)
//   u = nesterov ? fma(momentum, v, d) : v
//   p = fma(-lr, u, p)
// Without momentum (v.data null): u = d.
struct SgdArgs {
  In g;
  Out p, v;
  int64_t n;
  float scale = 1, lr = 0, momentum = 0, weight_decay = 0, ratio = 1;
  bool nesterov = false;
  ELINVAR_FIELDS(g, p, v, n, scale, lr, momentum, weight_decay, ratio, nesterov)
};
// Updates all parameters of a step at once; threads share their elements.
void sgd(CpuStream&, std::span<const SgdArgs>);
template <class B>
void sgd(GpuStream<B>&, std::span<const SgdArgs>);

// Adam (Kingma and Ba, arXiv:1412.6980) and AdamW (Loshchilov and Hutter, arXiv:1711.05101) as in PyTorch.
// For step t = 1, 2, ...: correction1 = 1 / (1 - beta1^t), root_correction2 = 1 / sqrt(1 - beta2^t),
// step_size = lr * correction1.
//   Adam: d = fma(weight_decay, p, g)    AdamW: d = g; p = p * decay, with decay = 1 - lr * weight_decay
//   m = fma(beta1, m, one_minus_beta1 * d)
//   v = fma(beta2, v, one_minus_beta2 * (d * d))
//   p = fma(-step_size, m / fma(sqrt(v), root_correction2, eps), p)
// Adam passes decay = 1, AdamW weight_decay = 0: both run the whole list.
struct AdamArgs {
  In g;
  Out p, m, v;
  int64_t n;
  float scale = 1, beta1 = 0, one_minus_beta1 = 1, beta2 = 0, one_minus_beta2 = 1, eps = 0;
  float weight_decay = 0, decay = 1, step_size = 0, root_correction2 = 1;
  ELINVAR_FIELDS(g, p, m, v, n, scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, weight_decay, decay,
                 step_size, root_correction2)
};
void adam(CpuStream&, std::span<const AdamArgs>);
template <class B>
void adam(GpuStream<B>&, std::span<const AdamArgs>);

// LAMB (You et al., arXiv:1904.00962). The first pass updates the moments m and v as AdamW does, and sums the squares
// of p and u:
//   u = fma(weight_decay, p, (m * correction1) / fma(sqrt(v), root_correction2, eps))
// The second pass recomputes u from the moments. With ratio = |p| / |u| (1 if either is 0, or if |u| is so small that
// lr * |p| / |u| is beyond float32, which happens to moments that rounding keeps from reaching 0):
//   p = fma(-step_size, u, p), with step_size = lr * ratio
struct LambArgs {
  In g;
  Out p, m, v;
  Out square_sums;  // two float64 for each segment of 4096 elements: p's and u's (NUMERICS.md, rule 19)
  int64_t n;
  float scale = 1, beta1 = 0, one_minus_beta1 = 1, beta2 = 0, one_minus_beta2 = 1, eps = 0;
  float weight_decay = 0, correction1 = 1, root_correction2 = 1, step_size = 0;
  ELINVAR_FIELDS(g, p, m, v, square_sums, n, scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, weight_decay,
                 correction1, root_correction2, step_size)
};
void lamb_moments(CpuStream&, const LambArgs&);
template <class B>
void lamb_moments(GpuStream<B>&, const LambArgs&);
void lamb_apply(CpuStream&, const LambArgs&);
template <class B>
void lamb_apply(GpuStream<B>&, const LambArgs&);

// Update all parameters p at once, in place. Gradients g and moments are in the order of p, contiguous, of p's types
// and on one device. Of the constants of each parameter only `n` and the numbers are used.
void sgd(const std::vector<Tensor>& g, std::vector<Tensor>& p, std::vector<Tensor>& v,  // v: empty without momentum
         const std::vector<SgdArgs>& constants);
void adam(const std::vector<Tensor>& g, std::vector<Tensor>& p, std::vector<Tensor>& m, std::vector<Tensor>& v,
          const std::vector<AdamArgs>& constants);
// Returns the square sums of p and u, float64, (segments of 4096 elements of all parameters, 2).
Tensor lamb_moments(const std::vector<Tensor>& g, const std::vector<Tensor>& p, std::vector<Tensor>& m,
                    std::vector<Tensor>& v, const std::vector<LambArgs>& constants);
void lamb_apply(std::vector<Tensor>& p, const std::vector<Tensor>& m, const std::vector<Tensor>& v,
                const std::vector<LambArgs>& constants);

}  // namespace elinvar
