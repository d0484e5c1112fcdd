#pragma once
// Softmax and log-softmax along the last dimension (NUMERICS.md, rule 14):
//   m = max(x), e = exp(x - m), l = sum(e), softmax = e * (1 / l), log_softmax = (x - m) - log(l)
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

Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& dy, const Tensor& y);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y);

}  // namespace elinvar
