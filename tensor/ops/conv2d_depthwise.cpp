#include "tensor/ops/conv2d_depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/conv2d_depthwise.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/ops/conv2d_rows.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// target[p, c] = sum over taps of source[pixel, c] * w[tap, c] for the tiles [begin, end) of the positions.
template <class T>
void multiply_positions(const PositionRows<T>& positions, const T* w, const T* bias, int64_t channels, int64_t begin,
                        int64_t end) {
  using V = Vec<T>;
  constexpr int R = kPositionsAtOnce;
  auto place = positions.place(begin * R);
  for (int64_t first = begin * R; first < std::min(end * R, positions.rows()); first += R) {
    const TileRows<T> t = positions.tile(place, R);
    for (int64_t c = 0; c < channels; c += V::kLanes) {
      const int64_t count = channels - c;
      V acc[R];
      for (int r = 0; r < R; ++r) acc[r] = V::set(T{0});
      for (const Span& span : positions.spans()) {
        for (int64_t q = c; q < span.length; q += channels) {  // the taps of a span
          const V filter = V::load(w + span.k + q, count);
          for (int r = 0; r < R; ++r) acc[r] = fma(V::load(t.a[r] + span.offset + q, count), filter, acc[r]);
        }
      }
      for (int r = 0; r < t.count; ++r) {
        V sum = V::set(T{0}) + acc[r];
        if (bias) sum = sum + V::load(bias + c, count);
        sum.store(t.c[r] + c, count);
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
    V group = V::set(T{0}), total = V::set(T{0});
    for_each_chunk<T>(0, positions, positions, [&](const Chunk& chunk) HWY_ATTR {
      V acc = V::set(T{0});
      for_each_tap_row(g, tap / g.kw, tap % g.kw, chunk.begin, chunk.end,
                       [&](int64_t k, int64_t pixel, int64_t n) HWY_ATTR {
                         const T *dy = args.dy.as<T>() + k * g.c + c, *x = args.x.as<T>() + pixel * g.c + c;
                         for (int64_t i = 0; i < n; ++i, dy += g.c, x += g.stride_w * g.c)
                           acc = fma(V::load(dy, count), V::load(x, count), acc);
                       });
      group = (chunk.opens_group ? V::set(T{0}) : group) + acc;
      if (chunk.closes_group) total = total + group;
    });
    total.store(dw + tap * g.c + c, count);
  }
}

void multiply_f32(const PositionRows<float>& p, const float* w, const float* bias, int64_t c, int64_t b, int64_t e) {
  multiply_positions(p, w, bias, c, b, e);
}
void multiply_f64(const PositionRows<double>& p, const double* w, const double* bias, int64_t c, int64_t b, int64_t e) {
  multiply_positions(p, w, bias, c, b, e);
}
void grad_filter_f32(const ConvGradFilterArgs& a, float* w, int64_t b, int64_t e) { grad_filter_items(a, w, b, e); }
void grad_filter_f64(const ConvGradFilterArgs& a, double* w, int64_t b, int64_t e) { grad_filter_items(a, w, b, e); }
int64_t lanes_f32() { return Vec<float>::kLanes; }

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(grad_filter_f32);
HWY_EXPORT(grad_filter_f64);
HWY_EXPORT(lanes_f32);

namespace {

// Rearrange filters (c, tap) as (tap, c), and back.
template <class T>
void transpose_filters(const T* from, T* to, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) to[j * rows + i] = from[i * cols + j];
}

// target = source times filters w (c, kh, kw).
template <class T>
void multiply(CpuStream& stream, const ConvGeometry& g, const ImageChannels<const T>& source,
              const ImageChannels<T>& target, const std::vector<Stretch>& ys, const std::vector<Stretch>& xs,
              const T* w, const T* bias) {
  Scratch<T> by_tap(g.kh * g.kw * g.c);
  transpose_filters(w, by_tap.data(), g.c, g.kh * g.kw);
  for (const PositionRows<T>& positions : position_rows(source, target, ys, xs, g.kw)) {
    const int64_t tiles = (positions.rows() + kPositionsAtOnce - 1) / kPositionsAtOnce;
    stream.parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      if constexpr (sizeof(T) == 4) HWY_DYNAMIC_DISPATCH(multiply_f32)(positions, by_tap.data(), bias, g.c, begin, end);
      else HWY_DYNAMIC_DISPATCH(multiply_f64)(positions, by_tap.data(), bias, g.c, begin, end);
    });
  }
}

}  // namespace

template <class T>
void depthwise_forward(CpuStream& stream, const ConvArgs& args) {
  const ConvGeometry& g = args.g;
  multiply<T>(stream, g, {args.x.as<T>(), g.n, g.h, g.w, g.c, 0, g.c}, {args.y.as<T>(), g.n, g.oh, g.ow, g.c, 0, g.c},
              forward_axis(vertical(g)), forward_axis(horizontal(g)), args.w.as<T>(), static_cast<const T*>(args.bias));
}

template <class T>
void depthwise_grad_input(CpuStream& stream, const ConvGradInputArgs& args) {
  const ConvGeometry& g = args.g;
  multiply<T>(stream, g, {args.dy.as<T>(), g.n, g.oh, g.ow, g.c, 0, g.c}, {args.dx.as<T>(), g.n, g.h, g.w, g.c, 0, g.c},
              backward_axis(vertical(g)), backward_axis(horizontal(g)), args.w.as<T>(), nullptr);
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
