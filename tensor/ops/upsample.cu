#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/ops/upsample.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// One thread per element of the result.
template <class T>
__global__ void upsample_elements(UpsampleArgs a) {
  const int64_t n = a.images * a.h.out * a.w.out * a.channels;
  for (int64_t at = thread_of_grid(); at < n; at += grid_stride()) {
    const int64_t row = at / a.channels / a.w.out, image = row / a.h.out;
    const UpsampleTaps<float> h = a.h.taps<float>(row % a.h.out), w = a.w.taps<float>(at / a.channels % a.w.out);
    const Reads<T> x{a.x.as<T>() + ((image * a.h.in + h.first) * a.w.in + w.first) * a.channels + at % a.channels};
    const auto term = [&](int i, int j, V sum) {
      return fma(V{h.weights[i] * w.weights[j]}, V{x[(i * a.w.in + j) * a.channels]}, sum);
    };
    V sum = V{h.weights[0] * w.weights[0]} * V{x[0]};
    if (w.count == 2) sum = term(0, 1, sum);
    if (h.count == 2) sum = term(1, 0, sum);
    if (h.count == 2 && w.count == 2) sum = term(1, 1, sum);
    a.y.as<T>()[at] = stored<T>(sum.v);
  }
}

template <class T>
__global__ void upsample_gradients(UpsampleArgs a) {
  const int64_t n = a.images * a.h.in * a.w.in * a.channels;
  for (int64_t at = thread_of_grid(); at < n; at += grid_stride()) {
    const int64_t row = at / a.channels / a.w.in, image = row / a.h.in;
    const int64_t ih = row % a.h.in, iw = at / a.channels % a.w.in;
    const Reads<T> dy{a.x.as<T>() + image * a.h.out * a.w.out * a.channels + at % a.channels};
    V sum{0.0f};
    for (int64_t oh = a.h.first_output(ih); oh <= a.h.last_output(ih); ++oh) {
      const float of_row = a.h.taps<float>(oh).weight_of(ih);
      if (of_row == 0.0f) continue;
      for (int64_t ow = a.w.first_output(iw); ow <= a.w.last_output(iw); ++ow) {
        const float of_column = a.w.taps<float>(ow).weight_of(iw);
        if (of_column != 0.0f) sum = fma(V{of_row * of_column}, V{dy[(oh * a.w.out + ow) * a.channels]}, sum);
      }
    }
    a.y.as<T>()[at] = stored<T>(sum.v);
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void upsample(Gpu& stream, const UpsampleArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    launch(stream, "upsample", {.blocks = blocks_for(a.images * a.h.out * a.w.out * a.channels)},
           HWY_NAMESPACE::upsample_elements<decltype(zero)>, a);
  });
}

template <>
void upsample_backward(Gpu& stream, const UpsampleArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    launch(stream, "upsample_backward", {.blocks = blocks_for(a.images * a.h.in * a.w.in * a.channels)},
           HWY_NAMESPACE::upsample_gradients<decltype(zero)>, a);
  });
}

}  // namespace elinvar
