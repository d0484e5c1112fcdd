#include "tensor/ops/conv2d_depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/conv2d_depthwise.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/scratch.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// y[p, c] = sum over taps of x[pixel, c] * w[tap, c]; rows [begin, end) of output pixels, filters as (tap, c).
template <class T>
void forward_rows(const ConvArgs& args, const T* w, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const ConvGeometry& g = args.g;
  const T* bias = static_cast<const T*>(args.bias);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t n = row / g.oh, oh = row % g.oh;
    for (int64_t ow = 0; ow < g.ow; ++ow) {
      T* y = args.y.as<T>() + (row * g.ow + ow) * g.c;
      for (int64_t c = 0; c < g.c; c += V::kLanes) {
        const int64_t count = g.c - c;
        V acc = V::set(T{0});
        for (int64_t kh = 0; kh < g.kh; ++kh) {
          const int64_t ih = oh * g.stride_h - g.pad_h + kh * g.dilation_h;
          if (ih < 0 || ih >= g.h) continue;
          for (int64_t kw = 0; kw < g.kw; ++kw) {
            const int64_t iw = ow * g.stride_w - g.pad_w + kw * g.dilation_w;
            if (iw < 0 || iw >= g.w) continue;
            acc = fma(V::load(args.x.as<T>() + ((n * g.h + ih) * g.w + iw) * g.c + c, count),
                      V::load(w + (kh * g.kw + kw) * g.c + c, count), acc);
          }
        }
        V sum = V::set(T{0}) + acc;
        if (bias) sum = sum + V::load(bias + c, count);
        sum.store(y + c, count);
      }
    }
  }
}

// dx[i, c] = sum over taps, ascending, of dy[o, c] * w[tap, c] where o * stride + tap * dilation = i + pad.
template <class T>
void grad_input_rows(const ConvGradInputArgs& args, const T* w, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const ConvGeometry& g = args.g;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t n = row / g.h, ih = row % g.h;
    for (int64_t iw = 0; iw < g.w; ++iw) {
      T* dx = args.dx.as<T>() + (row * g.w + iw) * g.c;
      for (int64_t c = 0; c < g.c; c += V::kLanes) {
        const int64_t count = g.c - c;
        V acc = V::set(T{0});
        for (int64_t kh = 0; kh < g.kh; ++kh) {
          const int64_t y = ih + g.pad_h - kh * g.dilation_h;
          if (y < 0 || y % g.stride_h != 0 || y / g.stride_h >= g.oh) continue;
          for (int64_t kw = 0; kw < g.kw; ++kw) {
            const int64_t x = iw + g.pad_w - kw * g.dilation_w;
            if (x < 0 || x % g.stride_w != 0 || x / g.stride_w >= g.ow) continue;
            acc = fma(V::load(args.dy.as<T>() + ((n * g.oh + y / g.stride_h) * g.ow + x / g.stride_w) * g.c + c, count),
                      V::load(w + (kh * g.kw + kw) * g.c + c, count), acc);
          }
        }
        (V::set(T{0}) + acc).store(dx + c, count);
      }
    }
  }
}

// dw[tap, c] = sum over output positions of dy[p, c] * x[pixel, c]; items [begin, end) are vectors of one tap.
template <class T>
void grad_filter_items(const ConvGradFilterArgs& args, T* dw, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const ConvGeometry& g = args.g;
  const int64_t vectors = (g.c + V::kLanes - 1) / V::kLanes, positions = g.n * g.oh * g.ow;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t tap = item / vectors, c = item % vectors * V::kLanes, count = g.c - c;
    const int64_t dy_offset = tap / g.kw * g.dilation_h - g.pad_h, dx_offset = tap % g.kw * g.dilation_w - g.pad_w;
    V total = V::set(T{0});
    for (int64_t k_group = 0; k_group < positions; k_group += kChunk * kGroup) {
      V group = V::set(T{0});
      for (int64_t k0 = k_group; k0 < std::min(positions, k_group + kChunk * kGroup); k0 += kChunk) {
        V acc = V::set(T{0});
        for (int64_t k = k0; k < std::min(positions, k0 + kChunk); ++k) {
          const int64_t ih = k / g.ow % g.oh * g.stride_h + dy_offset, iw = k % g.ow * g.stride_w + dx_offset;
          if (ih < 0 || ih >= g.h || iw < 0 || iw >= g.w) continue;
          acc = fma(V::load(args.dy.as<T>() + k * g.c + c, count),
                    V::load(args.x.as<T>() + ((k / (g.ow * g.oh) * g.h + ih) * g.w + iw) * g.c + c, count), acc);
        }
        group = group + acc;
      }
      total = total + group;
    }
    total.store(dw + tap * g.c + c, count);
  }
}

void forward_f32(const ConvArgs& a, const float* w, int64_t b, int64_t e) { forward_rows(a, w, b, e); }
void forward_f64(const ConvArgs& a, const double* w, int64_t b, int64_t e) { forward_rows(a, w, b, e); }
void grad_input_f32(const ConvGradInputArgs& a, const float* w, int64_t b, int64_t e) { grad_input_rows(a, w, b, e); }
void grad_input_f64(const ConvGradInputArgs& a, const double* w, int64_t b, int64_t e) { grad_input_rows(a, w, b, e); }
void grad_filter_f32(const ConvGradFilterArgs& a, float* w, int64_t b, int64_t e) { grad_filter_items(a, w, b, e); }
void grad_filter_f64(const ConvGradFilterArgs& a, double* w, int64_t b, int64_t e) { grad_filter_items(a, w, b, e); }
int64_t lanes_f32() { return Vec<float>::kLanes; }

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(grad_input_f32);
HWY_EXPORT(grad_input_f64);
HWY_EXPORT(grad_filter_f32);
HWY_EXPORT(grad_filter_f64);
HWY_EXPORT(lanes_f32);

namespace {

// Filters (c, tap) as (tap, c), and back.
template <class T>
void transpose_filters(const T* from, T* to, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) to[j * rows + i] = from[i * cols + j];
}

}  // namespace

template <class T>
void depthwise_forward(CpuStream& stream, const ConvArgs& args) {
  const ConvGeometry& g = args.g;
  Scratch<T> w(g.kh * g.kw * g.c);
  transpose_filters(args.w.as<T>(), w.data(), g.c, g.kh * g.kw);
  stream.parallel_for(g.n * g.oh, 1, [&](int64_t begin, int64_t end) {
    if constexpr (sizeof(T) == 4) HWY_DYNAMIC_DISPATCH(forward_f32)(args, w.data(), begin, end);
    else HWY_DYNAMIC_DISPATCH(forward_f64)(args, w.data(), begin, end);
  });
}

template <class T>
void depthwise_grad_input(CpuStream& stream, const ConvGradInputArgs& args) {
  const ConvGeometry& g = args.g;
  Scratch<T> w(g.kh * g.kw * g.c);
  transpose_filters(args.w.as<T>(), w.data(), g.c, g.kh * g.kw);
  stream.parallel_for(g.n * g.h, 1, [&](int64_t begin, int64_t end) {
    if constexpr (sizeof(T) == 4) HWY_DYNAMIC_DISPATCH(grad_input_f32)(args, w.data(), begin, end);
    else HWY_DYNAMIC_DISPATCH(grad_input_f64)(args, w.data(), begin, end);
  });
}

template <class T>
void depthwise_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  const ConvGeometry& g = args.g;
  Scratch<T> dw(g.kh * g.kw * g.c);
  const int64_t lanes = sizeof(T) == 4 ? HWY_DYNAMIC_DISPATCH(lanes_f32)() : 1;
  stream.parallel_for(g.kh * g.kw * ((g.c + lanes - 1) / lanes), 1, [&](int64_t begin, int64_t end) {
    if constexpr (sizeof(T) == 4) HWY_DYNAMIC_DISPATCH(grad_filter_f32)(args, dw.data(), begin, end);
    else HWY_DYNAMIC_DISPATCH(grad_filter_f64)(args, dw.data(), begin, end);
  });
  transpose_filters(dw.data(), args.dw.as<T>(), g.kh * g.kw, g.c);
}

template void depthwise_forward<float>(CpuStream&, const ConvArgs&);
template void depthwise_forward<double>(CpuStream&, const ConvArgs&);
template void depthwise_grad_input<float>(CpuStream&, const ConvGradInputArgs&);
template void depthwise_grad_input<double>(CpuStream&, const ConvGradInputArgs&);
template void depthwise_grad_filter<float>(CpuStream&, const ConvGradFilterArgs&);
template void depthwise_grad_filter<double>(CpuStream&, const ConvGradFilterArgs&);

}  // namespace elinvar
#endif
