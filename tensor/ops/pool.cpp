#include "tensor/ops/pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/pool.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/columns-inl.h"
#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Calls f(image, h, w, offset of the result) for the windows of rows [begin, end) of the result.
template <class T, class F>
HWY_INLINE void each_window(const PoolArgs& a, int64_t begin, int64_t end, F f) {
  for (int64_t row = begin; row < end; ++row) {
    const PoolWindow h(a.h, row % a.h.out);
    const T* image = a.x.as<T>() + row / a.h.out * a.h.in * a.w.in * a.channels;
    for (int64_t ow = 0; ow < a.w.out; ++ow) f(image, h, PoolWindow(a.w, ow), (row * a.w.out + ow) * a.channels);
  }
}

template <class T>
void max_rows(const PoolArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const int64_t row_stride = a.w.in * a.channels;
  each_window<T>(a, begin, end, [&](const T* image, const PoolWindow& h, const PoolWindow& w, int64_t at) {
    const T first_place = static_cast<T>((h.begin - h.origin) * w.extent + w.begin - w.origin);
    for (int64_t c = 0; c < a.channels; c += V::kLanes) {
      const int64_t count = a.channels - c;
      V best = V::load(image + h.begin * row_stride + w.begin * a.channels + c, count), winner = V::set(first_place);
      for (int64_t i = h.begin; i < h.end; ++i) {
        for (int64_t j = w.begin; j < w.end; ++j) {
          const V v = V::load(image + i * row_stride + j * a.channels + c, count);
          const auto better = mask_and(mask_not(v <= best), best == best);
          best = select(better, v, best);
          winner = select(better, V::set(static_cast<T>((i - h.origin) * w.extent + j - w.origin)), winner);
        }
      }
      best.store(a.y.as<T>() + at + c, count);
      if (a.winner.data) winner.store(a.winner.as<T>() + at + c, count);
    }
  });
}

// Returns the sum of a window at one vector of channels; its present terms are added to their nominal chains.
template <class T>
HWY_INLINE Vec<T> window_sum(const T* image, int64_t row_stride, int64_t channels, const PoolWindow& h,
                             const PoolWindow& w, int64_t count) {
  using V = Vec<T>;
  Carries<V, 1> carry;
  int64_t chains = 0;
  V acc[1] = {V::set(T{0})};
  const auto close_chains = [&](int64_t until) {
    while (chains < until) {
      carry_chain<V, 1>(carry, chains, acc);
      acc[0] = V::set(T{0});
    }
  };
  for (int64_t i = h.begin; i < h.end; ++i) {
    for (int64_t j = w.begin; j < w.end; ++j) {
      close_chains(((i - h.origin) * w.extent + j - w.origin) / kColumnLeaf);
      acc[0] = acc[0] + V::load(image + i * row_stride + j * channels, count);
    }
  }
  close_chains((h.extent * w.extent + kColumnLeaf - 1) / kColumnLeaf);
  sum_carries<V, 1>(carry, chains, acc);
  return acc[0];
}

template <class T>
void avg_rows(const PoolArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const int64_t row_stride = a.w.in * a.channels;
  each_window<T>(a, begin, end, [&](const T* image, const PoolWindow& h, const PoolWindow& w, int64_t at) {
    const V n = V::set(static_cast<T>(pool_divisor(h, w, a.present_only)));
    for (int64_t c = 0; c < a.channels; c += V::kLanes) {
      const int64_t count = a.channels - c;
      (window_sum(image + c, row_stride, a.channels, h, w, count) / n).store(a.y.as<T>() + at + c, count);
    }
  });
}

// Computes rows of dx from term(offset of the window's element, c, count, index of this position in it, divisor).
template <class T, class Term>
void gather_rows(const PoolBackwardArgs& a, int64_t begin, int64_t end, Term term) {
  using V = Vec<T>;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / a.h.in, ih = row % a.h.in;
    const int64_t h_first = a.h.first_output(ih), h_last = a.h.last_output(ih);
    for (int64_t iw = 0; iw < a.w.in; ++iw) {
      const int64_t w_first = a.w.first_output(iw), w_last = a.w.last_output(iw);
      T* dx = a.dx.as<T>() + (row * a.w.in + iw) * a.channels;
      for (int64_t c = 0; c < a.channels; c += V::kLanes) {
        const int64_t count = a.channels - c;
        V acc = V::set(T{0});
        for (int64_t oh = h_first; oh <= h_last; ++oh) {
          for (int64_t ow = w_first; ow <= w_last; ++ow) {
            const int64_t at = ((image * a.h.out + oh) * a.w.out + ow) * a.channels + c;
            acc = acc + term(at, count, oh, ow, ih, iw);
          }
        }
        acc.store(dx + c, count);
      }
    }
  }
}

void max_pool_rows(const PoolArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) { max_rows<decltype(zero)>(a, begin, end); });
}

void avg_pool_rows(const PoolArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) { avg_rows<decltype(zero)>(a, begin, end); });
}

void max_pool_backward_rows(const PoolBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const T *dy = a.dy.as<T>(), *winner = a.winner.as<T>();
    gather_rows<T>(a, begin, end, [&](int64_t at, int64_t count, int64_t oh, int64_t ow, int64_t ih, int64_t iw) {
      const V place = V::set(static_cast<T>((ih - a.h.begin(oh)) * a.w.kernel + iw - a.w.begin(ow)));
      return select(V::load(winner + at, count) == place, V::load(dy + at, count), V::set(T{0}));
    });
  });
}

void avg_pool_backward_rows(const PoolBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const T* dy = a.dy.as<T>();
    gather_rows<T>(a, begin, end, [&](int64_t at, int64_t count, int64_t oh, int64_t ow, int64_t, int64_t) {
      return V::load(dy + at, count) /
             V::set(static_cast<T>(pool_divisor(PoolWindow(a.h, oh), PoolWindow(a.w, ow), a.present_only)));
    });
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(max_pool_rows);
HWY_EXPORT(avg_pool_rows);
HWY_EXPORT(max_pool_backward_rows);
HWY_EXPORT(avg_pool_backward_rows);

namespace {

int64_t grain(int64_t row) { return 8192 / (row + 1) + 1; }  // rows per thread that are worth its overhead

// Requires axes in the form that the functions below make.
void check_axes(const char* op, const PoolAxis& h, const PoolAxis& w) {
  for (const PoolAxis& a : {h, w})
    check(
        a == (a.kernel == 0 ? adaptive_pool_axis(op, a.in, a.out) : pool_axis(op, a.in, a.kernel, a.stride, a.padding)),
        "[{}] {} positions do not become {} by windows of {}, {} apart", op, a.in, a.out, a.kernel, a.stride);
}

Shape pooled_shape(const char* op, const Tensor& x, const PoolAxis& h, const PoolAxis& w) {
  check_activation(op, x);
  check_axes(op, h, w);
  check(x.ndim() == 4 && x.dim(1) == h.in && x.dim(2) == w.in, "[{}] images (N, {}, {}, C) expected, shape is {}", op,
        h.in, w.in, to_string(x.shape()));
  return {x.dim(0), h.out, w.out, x.dim(3)};
}

PoolBackwardArgs backward_args(const char* op, const Tensor& dy, Tensor& dx, const PoolAxis& h, const PoolAxis& w) {
  check_activation(op, dy);
  check_axes(op, h, w);
  check(dy.ndim() == 4 && dy.dim(1) == h.out && dy.dim(2) == w.out,
        "[{}] a gradient (N, {}, {}, C) expected, shape is {}", op, h.out, w.out, to_string(dy.shape()));
  dx = Tensor::empty({dy.dim(0), h.in, w.in, dy.dim(3)}, dy.dtype(), dy.device());
  return {in(dy), {}, out(dx), dy.dim(0), dy.dim(3), h, w, false};
}

}  // namespace

void max_pool(CpuStream& stream, const PoolArgs& a) {
  stream.parallel_for(a.images * a.h.out, grain(a.w.out * a.channels), [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(max_pool_rows, a.x.dtype)(a, b, e);
  });
}
void avg_pool(CpuStream& stream, const PoolArgs& a) {
  stream.parallel_for(a.images * a.h.out, grain(a.h.in * a.w.in * a.channels / a.h.out), [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(avg_pool_rows, a.x.dtype)
    (a, b, e);
  });
}
void max_pool_backward(CpuStream& stream, const PoolBackwardArgs& a) {
  stream.parallel_for(a.images * a.h.in, grain(a.w.in * a.channels), [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(max_pool_backward_rows, a.dy.dtype)(a, b, e);
  });
}
void avg_pool_backward(CpuStream& stream, const PoolBackwardArgs& a) {
  stream.parallel_for(a.images * a.h.in, grain(a.w.in * a.channels), [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(avg_pool_backward_rows, a.dy.dtype)(a, b, e);
  });
}

PoolAxis pool_axis(const char* op, int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
  check(kernel > 0 && stride > 0, "[{}] kernel and stride must be positive, got {} and {}", op, kernel, stride);
  check(padding >= 0 && 2 * padding <= kernel, "[{}] padding must be between 0 and half the kernel {}, got {}", op,
        kernel, padding);
  check(in > 0 && in + 2 * padding >= kernel, "[{}] a window of {} does not fit into {} positions with padding {}", op,
        kernel, in, padding);
  return {in, (in + 2 * padding - kernel) / stride + 1, kernel, stride, padding};
}

PoolAxis adaptive_pool_axis(const char* op, int64_t in, int64_t out) {
  check(in > 0 && out > 0, "[{}] extents must be positive, got {} in and {} out", op, in, out);
  return {in, out, 0, 1, 0};
}

namespace {

struct Pooled {
  Tensor y, winner;
  ELINVAR_FIELDS(y, winner)
};

void check_fixed_windows(const char* op, const PoolAxis& h, const PoolAxis& w) {
  check(h.kernel > 0 && w.kernel > 0, "[{}] adaptive windows are for means only", op);
}

Pooled max_pool_of(const Tensor& input, const PoolAxis& h, const PoolAxis& w, bool want_winner) {
  check_fixed_windows("max_pool2d", h, w);
  const Shape shape = pooled_shape("max_pool2d", input, h, w);
  const Tensor x = input.to_contiguous();
  Pooled pooled{.y = Tensor::empty(shape, x.dtype(), x.device()), .winner = {}};
  if (want_winner) pooled.winner = Tensor::empty(shape, computed_in(x.dtype()), x.device());
  on(x.device(), [&](auto& stream) {
    max_pool(stream,
             PoolArgs{in(x), out(pooled.y), want_winner ? out(pooled.winner) : Out{}, shape[0], shape[3], h, w});
  });
  return pooled;
}

Tensor max_pool_backward_of(const Tensor& gradient, const Tensor& saved, const PoolAxis& h, const PoolAxis& w) {
  check_fixed_windows("max_pool2d_backward", h, w);
  const Tensor dy = gradient.to_contiguous(),
               winner = operand("max_pool2d_backward", "the winners", saved, dy.shape(), dy);
  Tensor dx;
  PoolBackwardArgs args = backward_args("max_pool2d_backward", dy, dx, h, w);
  args.winner = in(winner);
  on(dy.device(), [&](auto& stream) { max_pool_backward(stream, args); });
  return dx;
}

Tensor avg_pool_of(const Tensor& input, const PoolAxis& h, const PoolAxis& w, bool present_only) {
  const Shape shape = pooled_shape("avg_pool2d", input, h, w);
  const Tensor x = input.to_contiguous();
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    avg_pool(stream, PoolArgs{in(x), out(y), {}, shape[0], shape[3], h, w, present_only});
  });
  return y;
}

Tensor avg_pool_backward_of(const Tensor& gradient, const PoolAxis& h, const PoolAxis& w, bool present_only) {
  const Tensor dy = gradient.to_contiguous();
  Tensor dx;
  PoolBackwardArgs args = backward_args("avg_pool2d_backward", dy, dx, h, w);
  args.present_only = present_only;
  on(dy.device(), [&](auto& stream) { avg_pool_backward(stream, args); });
  return dx;
}

const Op kMaxPool("max_pool(x, h, w, want_winner)", max_pool_of);
const Op kMaxPoolBackward("max_pool_backward(dy, winner, h, w) -> dx", max_pool_backward_of);
const Op kAvgPool("avg_pool(x, h, w, present_only) -> y", avg_pool_of);
const Op kAvgPoolBackward("avg_pool_backward(dy, h, w, present_only) -> dx", avg_pool_backward_of);

}  // namespace

Tensor max_pool(const Tensor& x, const PoolAxis& h, const PoolAxis& w, Tensor* winner) {
  Pooled pooled = kMaxPool(x, h, w, winner != nullptr);
  if (winner) *winner = std::move(pooled.winner);
  return std::move(pooled.y);
}

Tensor max_pool_backward(const Tensor& dy, const Tensor& winner, const PoolAxis& h, const PoolAxis& w) {
  return kMaxPoolBackward(dy, winner, h, w);
}

Tensor avg_pool(const Tensor& x, const PoolAxis& h, const PoolAxis& w, bool present_only) {
  return kAvgPool(x, h, w, present_only);
}

Tensor avg_pool_backward(const Tensor& dy, const PoolAxis& h, const PoolAxis& w, bool present_only) {
  return kAvgPoolBackward(dy, h, w, present_only);
}

}  // namespace elinvar
#endif
