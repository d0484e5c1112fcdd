#pragma once
// Softmax and log-softmax along the last dimension (NUMERICS.md, rule 14):
//   m = max(x), e = exp(x - m), l = sum(e), softmax = e * (1 / l), log_softmax = (x - m) - log(l)
// A row that has a NaN or +inf, or only -inf, becomes all NaN; -inf among finite elements gives 0, or -inf as a
// logarithm. If the maximum is a zero of either sign, the result is the same.
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct SoftmaxArgs {
  In x;
  Out y;
  int64_t rows, cols;
  bool log;
};
void softmax(CpuStream&, const SoftmaxArgs&);
template <class B>
void softmax(GpuStream<B>&, const SoftmaxArgs&);

// dx of a row: softmax     dx = y * (dy - sum(dy * y))
//              log-softmax dx = dy - exp(y) * sum(dy)
struct SoftmaxBackwardArgs {
  In dy, y;
  Out dx;
  int64_t rows, cols;
  bool log;
};
void softmax_backward(CpuStream&, const SoftmaxBackwardArgs&);
template <class B>
void softmax_backward(GpuStream<B>&, const SoftmaxBackwardArgs&);

// x (.., C), C > 0, float32 or float64 -> like x. Throws UsageError for anything else.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
// dy and the result y of the forward function -> like y
Tensor softmax_backward(const Tensor& dy, const Tensor& y);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y);

}  // namespace elinvar
