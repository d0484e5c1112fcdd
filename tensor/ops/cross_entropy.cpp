#include "tensor/ops/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/math-inl.h"
#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/index.h"
#include "tensor/trace.h"
#include "tensor/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Returns f of a single number, by way of a vector.
template <class T, class F>
HWY_INLINE T of_one(T x, F f) {
  T lanes[Vec<T>::kLanes];
  f(Vec<T>::set(x)).store(lanes);
  return lanes[0];
}

template <class T>
void losses(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const int64_t n = a.classes;
  const T smoothing = static_cast<T>(a.smoothing), rest = static_cast<T>(1.0 - a.smoothing);
  for (int64_t row = begin; row < end; ++row) {
    const T* s = a.logits.as<T>() + row * n;
    const int64_t target = a.targets.as<int64_t>()[row];
    if (target == a.ignored) {
      a.loss.as<T>()[row] = a.m.as<T>()[row] = a.r.as<T>()[row] = T{0};
      continue;
    }
    const T m = row_max(s, n);
    const V vm = V::set(m);
    const T l =
        row_sum<T>(n, [&](int64_t i, int64_t count) { return first_lanes<T>(exp(V::load(s + i, count) - vm), count); });
    const T log_l = of_one<T>(l, [](V v) { return log(v); });
    T loss = log_l - (s[target] - m);
    if (a.smoothing != 0.0) {
      const T all =
          row_sum<T>(n, [&](int64_t i, int64_t count) { return first_lanes<T>(V::load(s + i, count) - vm, count); });
      loss = rest * loss + smoothing * (log_l - all / static_cast<T>(n));
    }
    a.loss.as<T>()[row] = loss;
    a.m.as<T>()[row] = m;
    a.r.as<T>()[row] = T{1} / l;
  }
}

template <class T>
void gradients(const CrossEntropyBackwardArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const int64_t n = a.classes;
  const double q = a.smoothing / static_cast<double>(a.whole);
  const T q_elsewhere = static_cast<T>(q), q_target = static_cast<T>((1.0 - a.smoothing) + q);
  const V dy = V::set(*a.dy.as<T>());
  for (int64_t row = begin; row < end; ++row) {
    const T* s = a.logits.as<T>() + row * n;
    T* ds = a.dlogits.as<T>() + row * n;
    const int64_t target = a.targets.as<int64_t>()[row];
    if (target == a.ignored) {
      std::fill(ds, ds + n, T{0});
      continue;
    }
    const V m = V::set(a.m.as<T>()[row]), r = V::set(a.r.as<T>()[row]);
    const auto gradient = [&](V v, T without) { return (exp(v - m) * r - V::set(without)) * dy; };
    const int64_t at = target - a.first;
    const bool here = at >= 0 && at < n;
    const T at_target = here ? of_one<T>(s[at], [&](V v) { return gradient(v, q_target); }) : T{0};
    for (int64_t i = 0; i < n; i += V::kLanes) gradient(V::load(s + i, n - i), q_elsewhere).store(ds + i, n - i);
    if (here) ds[at] = at_target;
  }
}

void cross_entropy_rows(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  visit_element(a.logits.dtype, [&](auto zero) { losses<decltype(zero)>(a, begin, end); });
}

void cross_entropy_backward_rows(const CrossEntropyBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.logits.dtype, [&](auto zero) { gradients<decltype(zero)>(a, begin, end); });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(cross_entropy_rows);
HWY_EXPORT(cross_entropy_backward_rows);

void cross_entropy(CpuStream& stream, const CrossEntropyArgs& a) {
  stream.parallel_for(a.rows, 4096 / (a.classes + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(cross_entropy_rows, a.logits.dtype)(a, b, e);
  });
}

void cross_entropy_backward(CpuStream& stream, const CrossEntropyBackwardArgs& a) {
  stream.parallel_for(a.rows, 4096 / (a.classes + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(cross_entropy_backward_rows, a.logits.dtype)(a, b, e);
  });
}

namespace {

CrossEntropyResult cross_entropy_of(const Tensor& logits, const Tensor& targets, double smoothing, int64_t ignored) {
  check_activation("cross_entropy", logits);
  check(logits.ndim() >= 1 && logits.dim(-1) > 0, "[cross_entropy] a last dimension of classes expected, shape is {}",
        to_string(logits.shape()));
  Shape expected = logits.shape();
  expected.erase(expected.ndim() - 1);
  check(targets.shape() == expected, "[cross_entropy] logits {} need targets of shape {}, got {}",
        to_string(logits.shape()), to_string(expected), to_string(targets.shape()));
  check(smoothing >= 0.0 && smoothing <= 1.0, "[cross_entropy] label smoothing must be in [0, 1], got {}", smoothing);
  const Tensor x = logits.to_contiguous();
  const int64_t classes = x.dim(-1), rows = expected.numel();
  const auto of_row = [&] { return Tensor::empty({rows}, computed_in(x.dtype()), x.device()); };
  CrossEntropyResult y{of_row(), checked_index("cross_entropy", targets, classes, ignored).to(x.device()), of_row(),
                       of_row()};
  on(x.device(), [&](auto& stream) {
    cross_entropy(stream, CrossEntropyArgs{in(x), in(y.targets), out(y.loss), out(y.m), out(y.r), rows, classes,
                                           ignored, smoothing});
  });
  return y;
}

Tensor cross_entropy_shard_backward_of(const Tensor& dy, Tensor logits, const CrossEntropyResult& saved,
                                       double smoothing, int64_t ignored, const IndexShard& shard) {
  check_activation("cross_entropy_backward", logits);
  check(dy.numel() == 1, "[cross_entropy_backward] one element expected as gradient, shape is {}",
        to_string(dy.shape()));
  const Tensor scale = operand("cross_entropy_backward", "the gradient", dy, dy.shape(), logits);
  check(logits.ndim() >= 1 && logits.dim(-1) > 0,
        "[cross_entropy_backward] a last dimension of classes expected, shape is {}", to_string(logits.shape()));
  const int64_t classes = logits.dim(-1), rows = logits.numel() / classes;
  check(classes == shard.count && shard.first >= 0 && shard.first + classes <= shard.whole,
        "[cross_entropy_backward] logits of shape {} are no shard of {} classes from {} on", to_string(logits.shape()),
        shard.whole, shard.first);
  const Tensor m = operand("cross_entropy_backward", "m", saved.m, {rows}, logits),
               r = operand("cross_entropy_backward", "r", saved.r, {rows}, logits);
  check(saved.targets.defined() && saved.targets.dtype() == DType::i64 && saved.targets.numel() == rows &&
            saved.targets.device() == logits.device(),
        "[cross_entropy_backward] the targets must be those that were saved: int64, one of each of {} rows", rows);
  Tensor targets = saved.targets.to_contiguous();
  // A GPU's kernel only compares them, so they need no check.
  if (logits.device() == Device{}) targets = checked_index("cross_entropy_backward", targets, shard.whole, ignored);
  logits = logits.to_contiguous();
  const In x = in(logits);
  Tensor dx = onto(logits);
  on(dx.device(), [&](auto& stream) {
    cross_entropy_backward(stream, CrossEntropyBackwardArgs{in(scale), x, in(targets), in(m), in(r), out(dx), rows,
                                                            shard.first, classes, shard.whole, ignored, smoothing});
  });
  return dx;
}

Tensor cross_entropy_backward_of(const Tensor& dy, Tensor logits, const CrossEntropyResult& saved, double smoothing,
                                 int64_t ignored) {
  const int64_t classes = logits.ndim() >= 1 ? logits.dim(-1) : 0;
  return cross_entropy_shard_backward_of(dy, std::move(logits), saved, smoothing, ignored, {0, classes, classes});
}

const Op kCrossEntropy("cross_entropy(logits, targets, smoothing, ignored)", cross_entropy_of);
const Op kCrossEntropyBackward("cross_entropy_backward(dy, logits, saved, smoothing, ignored) -> dlogits",
                               cross_entropy_backward_of);
const Op kCrossEntropyShardBackward(
    "cross_entropy_shard_backward(dy, logits, saved, smoothing, ignored, shard) -> dlogits",
    cross_entropy_shard_backward_of);

}  // namespace

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing, int64_t ignored) {
  return kCrossEntropy(logits, targets, smoothing, ignored);
}

Tensor cross_entropy_backward(const Tensor& dy, Tensor logits, const CrossEntropyResult& saved, double smoothing,
                              int64_t ignored) {
  return kCrossEntropyBackward(dy, std::move(logits), saved, smoothing, ignored);
}

Tensor cross_entropy_shard_backward(const Tensor& dy, Tensor logits, const CrossEntropyResult& saved, double smoothing,
                                    int64_t ignored, const IndexShard& shard) {
  return kCrossEntropyShardBackward(dy, std::move(logits), saved, smoothing, ignored, shard);
}

}  // namespace elinvar
#endif
