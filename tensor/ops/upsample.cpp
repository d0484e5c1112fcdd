#include "tensor/ops/upsample.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/upsample.cpp"
#include <hwy/foreach_target.h>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/simd-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
void upsample_rows_of(const UpsampleArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  for (int64_t row = begin; row < end; ++row) {
    const UpsampleTaps<T> h = a.h.taps<T>(row % a.h.out);
    const T* const image = a.x.as<T>() + row / a.h.out * a.h.in * a.w.in * a.channels;
    for (int64_t ow = 0; ow < a.w.out; ++ow) {
      const UpsampleTaps<T> w = a.w.taps<T>(ow);
      T* const y = a.y.as<T>() + (row * a.w.out + ow) * a.channels;
      for (int64_t c = 0; c < a.channels; c += V::kLanes) {
        const int64_t count = a.channels - c;
        const auto pixel = [&](int i, int j) {
          return V::load(image + ((h.first + i) * a.w.in + w.first + j) * a.channels + c, count);
        };
        V sum = V::set(h.weights[0] * w.weights[0]) * pixel(0, 0);
        for (int i = 0; i < h.count; ++i)
          for (int j = i == 0 ? 1 : 0; j < w.count; ++j)
            sum = fma(V::set(h.weights[i] * w.weights[j]), pixel(i, j), sum);
        sum.store(y + c, count);
      }
    }
  }
}

template <class T>
void upsample_gradients_of(const UpsampleArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / a.h.in, ih = row % a.h.in;
    for (int64_t iw = 0; iw < a.w.in; ++iw) {
      T* const dx = a.y.as<T>() + (row * a.w.in + iw) * a.channels;
      for (int64_t c = 0; c < a.channels; c += V::kLanes) {
        const int64_t count = a.channels - c;
        V sum = V::set(T{0});
        for (int64_t oh = a.h.first_output(ih); oh <= a.h.last_output(ih); ++oh) {
          const T of_row = a.h.taps<T>(oh).weight_of(ih);
          if (of_row == T{0}) continue;
          for (int64_t ow = a.w.first_output(iw); ow <= a.w.last_output(iw); ++ow) {
            const T of_column = a.w.taps<T>(ow).weight_of(iw);
            if (of_column == T{0}) continue;
            const T* const dy = a.x.as<T>() + ((image * a.h.out + oh) * a.w.out + ow) * a.channels + c;
            sum = fma(V::set(of_row * of_column), V::load(dy, count), sum);
          }
        }
        sum.store(dx + c, count);
      }
    }
  }
}

void upsample_rows(const UpsampleArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) { upsample_rows_of<decltype(zero)>(a, begin, end); });
}

void upsample_gradients(const UpsampleArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) { upsample_gradients_of<decltype(zero)>(a, begin, end); });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(upsample_rows);
HWY_EXPORT(upsample_gradients);

namespace {

int64_t rows_of_upsample(int64_t elements) { return 8192 / (elements + 1) + 1; }  // worth the overhead of a thread

// Checks images (N, H, W, C) of the given sides, and returns those of the other sides.
Tensor upsample_result(const char* op, const Tensor& x, const UpsampleAxis& h, const UpsampleAxis& w, bool backward) {
  check_activation(op, x);
  check(h.in > 0 && w.in > 0 && h.out > 0 && w.out > 0, "[{}] extents must be positive, got {} x {} in and {} x {} out",
        op, h.in, w.in, h.out, w.out);
  const int64_t height = backward ? h.out : h.in, width = backward ? w.out : w.in;
  check(x.ndim() == 4 && x.dim(1) == height && x.dim(2) == width, "[{}] images (N, {}, {}, C) expected, shape is {}",
        op, height, width, to_string(x.shape()));
  return Tensor::empty({x.dim(0), backward ? h.in : h.out, backward ? w.in : w.out, x.dim(3)}, x.dtype(), x.device());
}

Tensor upsample_of(const Tensor& given, const UpsampleAxis& h, const UpsampleAxis& w) {
  Tensor y = upsample_result("upsample", given, h, w, /*backward=*/false);
  const Tensor x = given.to_contiguous();
  on(x.device(), [&](auto& stream) { upsample(stream, UpsampleArgs{in(x), out(y), x.dim(0), x.dim(3), h, w}); });
  return y;
}

Tensor upsample_backward_of(const Tensor& gradient, const UpsampleAxis& h, const UpsampleAxis& w) {
  Tensor dx = upsample_result("upsample_backward", gradient, h, w, /*backward=*/true);
  const Tensor dy = gradient.to_contiguous();
  on(dy.device(), [&](auto& stream) {
    upsample_backward(stream, UpsampleArgs{in(dy), out(dx), dy.dim(0), dy.dim(3), h, w});
  });
  return dx;
}

const Op kUpsample("upsample(x, h, w) -> y", upsample_of);
const Op kUpsampleBackward("upsample_backward(dy, h, w) -> dx", upsample_backward_of);

}  // namespace

void upsample(CpuStream& stream, const UpsampleArgs& a) {
  stream.parallel_for(a.images * a.h.out, rows_of_upsample(a.w.out * a.channels), [&](int64_t begin, int64_t end) {
    ELINVAR_KERNEL(upsample_rows, a.x.dtype)(a, begin, end);
  });
}

void upsample_backward(CpuStream& stream, const UpsampleArgs& a) {
  stream.parallel_for(a.images * a.h.in, rows_of_upsample(a.w.out * a.channels), [&](int64_t begin, int64_t end) {
    ELINVAR_KERNEL(upsample_gradients, a.x.dtype)(a, begin, end);
  });
}

Tensor upsample(const Tensor& x, const UpsampleAxis& h, const UpsampleAxis& w) { return kUpsample(x, h, w); }

Tensor upsample_backward(const Tensor& dy, const UpsampleAxis& h, const UpsampleAxis& w) {
  return kUpsampleBackward(dy, h, w);
}

}  // namespace elinvar
#endif
