#include "tensor/ops/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/softmax.cpp"
#include <hwy/foreach_target.h>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/math-inl.h"
#include "tensor/reduce-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
void forward_row(const T* x, T* y, int64_t n, bool log_form) {
  using V = Vec<T>;
  const T m = row_max(x, n);
  const V vm = V::set(m);
  for (int64_t i = 0; i < n; i += V::kLanes) exp(V::load(x + i, n - i) - vm).store(y + i, n - i);
  const T l = row_sum<T>(n, [&](int64_t j, int64_t count) { return V::load(y + j, count); });
  if (log_form) {
    const V log_l = log(V::set(l));
    for (int64_t i = 0; i < n; i += V::kLanes) ((V::load(x + i, n - i) - vm) - log_l).store(y + i, n - i);
  } else {
    const V r = V::set(T{1} / l);
    for (int64_t i = 0; i < n; i += V::kLanes) (V::load(y + i, n - i) * r).store(y + i, n - i);
  }
}

template <class T>
void backward_row(const T* dy, const T* y, T* dx, int64_t n, bool log_form) {
  using V = Vec<T>;
  const auto load_dy = [&](int64_t j, int64_t count) { return V::load(dy + j, count); };
  const auto load_y = [&](int64_t j, int64_t count) { return V::load(y + j, count); };
  const V s = V::set(log_form ? row_sum<T>(n, load_dy) : row_dot<T>(n, load_dy, load_y));
  for (int64_t i = 0; i < n; i += V::kLanes) {
    const V g = V::load(dy + i, n - i), p = V::load(y + i, n - i);
    (log_form ? g - exp(p) * s : p * (g - s)).store(dx + i, n - i);
  }
}

void softmax_rows(const SoftmaxArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = begin; r < end; ++r)
      forward_row(a.x.as<T>() + r * a.cols, a.y.as<T>() + r * a.cols, a.cols, a.log);
  });
}

void softmax_backward_rows(const SoftmaxBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = begin; r < end; ++r)
      backward_row(a.dy.as<T>() + r * a.cols, a.y.as<T>() + r * a.cols, a.dx.as<T>() + r * a.cols, a.cols, a.log);
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(softmax_rows);
HWY_EXPORT(softmax_backward_rows);

void softmax(CpuStream& stream, const SoftmaxArgs& a) {
  stream.parallel_for(a.rows, 4096 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(softmax_rows, a.x.dtype)(a, b, e);
  });
}

void softmax_backward(CpuStream& stream, const SoftmaxBackwardArgs& a) {
  stream.parallel_for(a.rows, 4096 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(softmax_backward_rows, a.y.dtype)(a, b, e);
  });
}

namespace {

Tensor forward(const Tensor& input, bool log_form, const char* name) {
  check_float(name, input);
  check(input.ndim() >= 1 && input.dim(-1) > 0, "[{}] a last dimension with elements expected, shape is {}", name,
        to_string(input.shape()));
  const Tensor x = input.to_contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const int64_t cols = x.dim(-1);
  on(x.device(), [&](auto& stream) { softmax(stream, SoftmaxArgs{in(x), out(y), x.numel() / cols, cols, log_form}); });
  return y;
}

Tensor gradient(const Tensor& dy, const Tensor& result, bool log_form, const char* name) {
  check_float(name, result);
  check_same_dtype(name, dy, result);
  check_same_shape(name, dy, result);
  check(result.ndim() >= 1 && result.dim(-1) > 0, "[{}] a last dimension with elements expected, shape is {}", name,
        to_string(result.shape()));
  const Tensor g = dy.to_contiguous(), y = result.to_contiguous();
  Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
  const int64_t cols = y.dim(-1);
  on(y.device(), [&](auto& stream) {
    softmax_backward(stream, SoftmaxBackwardArgs{in(g), in(y), out(dx), y.numel() / cols, cols, log_form});
  });
  return dx;
}

const Op kSoftmax(
    "softmax(x) -> y", +[](const Tensor& x) { return forward(x, false, "softmax"); });
const Op kLogSoftmax(
    "log_softmax(x) -> y", +[](const Tensor& x) { return forward(x, true, "log_softmax"); });
const Op kSoftmaxBackward(
    "softmax_backward(dy, y) -> dx",
    +[](const Tensor& dy, const Tensor& y) { return gradient(dy, y, false, "softmax_backward"); });
const Op kLogSoftmaxBackward(
    "log_softmax_backward(dy, y) -> dx",
    +[](const Tensor& dy, const Tensor& y) { return gradient(dy, y, true, "log_softmax_backward"); });

}  // namespace

Tensor softmax(const Tensor& x) { return kSoftmax(x); }
Tensor log_softmax(const Tensor& x) { return kLogSoftmax(x); }
Tensor softmax_backward(const Tensor& dy, const Tensor& y) { return kSoftmaxBackward(dy, y); }
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y) { return kLogSoftmaxBackward(dy, y); }

}  // namespace elinvar
#endif
