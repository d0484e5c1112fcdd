#include "tensor/ops/conv2d_depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/conv2d_depthwise.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/ops/conv2d_rows.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Loads a vector of channels of which `count` exist; kWhole says that all do.
template <class T, bool kWhole>
HWY_INLINE Vec<T> load_channels(const T* p, int64_t count) {
  if constexpr (kWhole) return Vec<T>::load(p);
  else return Vec<T>::load(p, count);
}

// One vector of channels, from `c` on, of a tile. Brings the pixels of the next tile to the first-level cache, row by
// row of taps: the hardware does not recognise the order in which a gradient reads them.
template <class T, bool kWhole>
HWY_INLINE void multiply_vector(const PositionRows<T>& positions, const TileRows<T>& t, const TileRows<T>& next,
                                const T* w, const T* bias, int64_t channels, int64_t c) {
  using V = Vec<T>;
  constexpr int R = kPositionsAtOnce;
  for (const int64_t offset : positions.new_pixels())
    for (int r = 0; r < R; ++r) __builtin_prefetch(next.a[r] + offset + c);
  const int64_t count = channels - c;
  V acc[R];
  for (int r = 0; r < R; ++r) acc[r] = V::set(T{0});
  for (const Span& span : positions.spans()) {
    for (int64_t q = c; q < span.length; q += channels) {  // the taps of a span
      const V filter = load_channels<T, kWhole>(w + span.k + q, count);
      for (int r = 0; r < R; ++r)
        acc[r] = fma(load_channels<T, kWhole>(t.a[r] + span.offset + q, count), filter, acc[r]);
    }
  }
  for (int r = 0; r < R; ++r) {  // a loop to t.count would keep acc in memory, not in registers
    if (r >= t.count) break;
    V sum = V::set(T{0}) + acc[r];
    if (bias) sum = sum + load_channels<T, kWhole>(bias + c, count);
    if constexpr (kWhole) sum.store(t.c[r] + c);
    else sum.store(t.c[r] + c, count);
  }
}

// target[p, c] = sum over taps of source[pixel, c] * w[tap, c] for the tiles [begin, end) of the positions.
template <class T>
void multiply_positions(const PositionRows<T>& positions, const T* w, const T* bias, int64_t channels, int64_t begin,
                        int64_t end) {
  constexpr int R = kPositionsAtOnce;
  const int64_t whole = channels / Vec<T>::kLanes * Vec<T>::kLanes;
  auto place = positions.place(begin * R);
  TileRows<T> next = positions.tile(place, R);
  for (int64_t first = begin * R; first < std::min(end * R, positions.rows()); first += R) {
    const TileRows<T> t = next;
    if (first + R < positions.rows()) next = positions.tile(place, R);
    for (int64_t c = 0; c < whole; c += Vec<T>::kLanes)
      multiply_vector<T, true>(positions, t, next, w, bias, channels, c);
    if (whole < channels) multiply_vector<T, false>(positions, t, next, w, bias, channels, whole);
  }
}

// A row of output positions of an image, [begin, end), with the row of the image that one row of taps reads.
template <class T>
struct FilterRow {
  const T *dy, *x;  // of position 0, and of the image's first pixel
  int64_t begin, end;
  int64_t stride, dilation, pad, width;  // of the image, horizontal
  int64_t channels;

  // The pixel that tap kw reads at a position, which may lie outside the image.
  int64_t pixel(int64_t position, int64_t kw) const { return position * stride + kw * dilation - pad; }
  bool reads(int64_t position, int64_t kw) const { return pixel(position, kw) >= 0 && pixel(position, kw) < width; }
};

// sums[kw, c] += sum over positions of dy[p, c] * x[pixel, c], for KW taps from `first_tap` on and NV vectors of
// channels from `c` on, of which `count` channels exist. Each tap adds up its positions in ascending order.
template <class T, int KW, int NV, bool kWhole>
HWY_INLINE void add_taps(const FilterRow<T>& row, int64_t first_tap, int64_t c, int64_t count, T* sums,
                         int64_t sums_of_tap) {
  using V = Vec<T>;
  V acc[KW][NV];
  for (int k = 0; k < KW; ++k)
    for (int v = 0; v < NV; ++v) acc[k][v] = V::load(sums + k * sums_of_tap + v * V::kLanes);
  const auto add = [&](int64_t p, bool inside) HWY_ATTR {
    constexpr int64_t kAhead =
        8;  // positions that are prefetched: rows are read in pieces, a few channels of each pixel
    const T *dy = row.dy + p * row.channels + c, *soon = row.dy + (p + kAhead) * row.channels + c;
    const T* soon_read = row.x + row.pixel(p + kAhead, first_tap + KW - 1) * row.channels + c;
    for (int v = 0; inside && v < NV; ++v) {
      __builtin_prefetch(soon + v * V::kLanes);
      __builtin_prefetch(soon_read + v * V::kLanes);
    }
    V d[NV];
    for (int v = 0; v < NV; ++v) d[v] = load_channels<T, kWhole>(dy + v * V::kLanes, count - v * V::kLanes);
    for (int k = 0; k < KW; ++k) {
      if (!inside && !row.reads(p, first_tap + k)) continue;
      const T* x = row.x + row.pixel(p, first_tap + k) * row.channels + c;
      for (int v = 0; v < NV; ++v)
        acc[k][v] = fma(d[v], load_channels<T, kWhole>(x + v * V::kLanes, count - v * V::kLanes), acc[k][v]);
    }
  };
  int64_t p = row.begin, inner = row.end;  // in [p, inner) all taps read the image
  while (p < inner && !row.reads(p, first_tap)) add(p++, false);
  while (p < inner && !row.reads(inner - 1, first_tap + KW - 1)) --inner;
  for (; p < inner; ++p) add(p, true);
  for (; p < row.end; ++p) add(p, false);
  for (int k = 0; k < KW; ++k)
    for (int v = 0; v < NV; ++v) acc[k][v].store(sums + k * sums_of_tap + v * V::kLanes);
}

// The same for all channels [first, last), two vectors at a time.
template <class T, int KW>
void add_taps_of_channels(const FilterRow<T>& row, int64_t first_tap, int64_t first, int64_t last, T* sums,
                          int64_t sums_of_tap) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  int64_t c = first;
  for (; c + 2 * kLanes <= last; c += 2 * kLanes)
    add_taps<T, KW, 2, true>(row, first_tap, c, last - c, sums + (c - first), sums_of_tap);
  for (; c < last; c += kLanes) add_taps<T, KW, 1, false>(row, first_tap, c, last - c, sums + (c - first), sums_of_tap);
}

// dw[tap, c] = sum over output positions of dy[p, c] * x[pixel, c]. An item is a group of positions (NUMERICS.md, rule
// 8) and a block of channels; `group_sums` (group, tap, channel) receives the sum of each.
template <class T>
void grad_filter_items(const ConvGradFilterArgs& args, int64_t block, T* group_sums, int64_t begin, int64_t end) {
  const ConvGeometry& g = args.g;
  const int64_t taps = g.kh * g.kw, positions = g.n * g.oh * g.ow, blocks = (g.c + block - 1) / block;
  const int64_t sums_of_tap = (block + Vec<T>::kLanes - 1) / Vec<T>::kLanes * Vec<T>::kLanes;
  Scratch<T> sums(taps * sums_of_tap);  // of a chunk
  for (int64_t item = begin; item < end; ++item) {
    const int64_t group = item / blocks * group_length<T>(), first = item % blocks * block;
    const int64_t last = std::min(g.c, first + block);
    T* total = group_sums + item / blocks * taps * g.c;
    for_each_chunk<T>(group, std::min(positions, group + group_length<T>()), positions, [&](const Chunk& chunk) {
      std::fill_n(sums.data(), taps * sums_of_tap, T{0});
      for (int64_t k = chunk.begin - chunk.begin % g.ow; k < chunk.end; k += g.ow) {  // a row's first position
        const int64_t image = k / (g.ow * g.oh), oh = k / g.ow % g.oh;
        FilterRow<T> row{.dy = args.dy.as<T>() + k * g.c,
                         .x = nullptr,
                         .begin = std::max(chunk.begin - k, int64_t{0}),
                         .end = std::min(chunk.end - k, g.ow),
                         .stride = g.stride_w,
                         .dilation = g.dilation_w,
                         .pad = g.pad_w,
                         .width = g.w,
                         .channels = g.c};
        for (int64_t kh = 0; kh < g.kh; ++kh) {
          const int64_t y = oh * g.stride_h + kh * g.dilation_h - g.pad_h;
          if (y < 0 || y >= g.h) continue;
          row.x = args.x.as<T>() + (image * g.h + y) * g.w * g.c;
          T* of_row = sums.data() + kh * g.kw * sums_of_tap;
          if (g.kw == 3) add_taps_of_channels<T, 3>(row, 0, first, last, of_row, sums_of_tap);
          else if (g.kw == 5) add_taps_of_channels<T, 5>(row, 0, first, last, of_row, sums_of_tap);
          else
            for (int64_t kw = 0; kw < g.kw; ++kw)
              add_taps_of_channels<T, 1>(row, kw, first, last, of_row + kw * sums_of_tap, sums_of_tap);
        }
      }
      for (int64_t tap = 0; tap < taps; ++tap) {
        for (int64_t c = first; c < last; ++c) {
          const T before = chunk.opens_group ? T{0} : total[tap * g.c + c];
          total[tap * g.c + c] = before + sums[tap * sums_of_tap + c - first];
        }
      }
    });
  }
}

void multiply_f32(const PositionRows<float>& p, const float* w, const float* bias, int64_t c, int64_t b, int64_t e) {
  multiply_positions(p, w, bias, c, b, e);
}
void multiply_f64(const PositionRows<double>& p, const double* w, const double* bias, int64_t c, int64_t b, int64_t e) {
  multiply_positions(p, w, bias, c, b, e);
}
void grad_filter_f32(const ConvGradFilterArgs& a, int64_t block, float* sums, int64_t b, int64_t e) {
  grad_filter_items(a, block, sums, b, e);
}
void grad_filter_f64(const ConvGradFilterArgs& a, int64_t block, double* sums, int64_t b, int64_t e) {
  grad_filter_items(a, block, sums, b, e);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(grad_filter_f32);
HWY_EXPORT(grad_filter_f64);

namespace {

constexpr int64_t kBlockChannels = 32;  // a block of channels is a multiple of this
constexpr int64_t kFilterItems = 16;    // of the gradient of filters, for threads

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
  const int64_t taps = g.kh * g.kw, positions = g.n * g.oh * g.ow;
  const int64_t groups = std::max<int64_t>(1, (positions + group_length<T>() - 1) / group_length<T>());
  // Blocks of whole vectors for any instruction set, as many as make enough items.
  const int64_t vectors = (g.c + kBlockChannels - 1) / kBlockChannels;
  const int64_t blocks = std::clamp<int64_t>(kFilterItems / groups, 1, vectors);
  const int64_t block = (vectors + blocks - 1) / blocks * kBlockChannels;
  Scratch<T> group_sums(groups * taps * g.c);
  stream.parallel_for(groups * ((g.c + block - 1) / block), 1, [&](int64_t begin, int64_t end) {
    if constexpr (sizeof(T) == 4) HWY_DYNAMIC_DISPATCH(grad_filter_f32)(args, block, group_sums.data(), begin, end);
    else HWY_DYNAMIC_DISPATCH(grad_filter_f64)(args, block, group_sums.data(), begin, end);
  });
  Scratch<T> dw(taps * g.c);
  for (int64_t i = 0; i < taps * g.c; ++i) {
    T total = 0;
    for (int64_t group = 0; group < groups; ++group) total = total + group_sums[group * taps * g.c + i];
    dw[i] = total;
  }
  transpose_filters(dw.data(), args.dw.as<T>(), taps, g.c);
}

template void depthwise_forward<float>(CpuStream&, const ConvArgs&);
template void depthwise_forward<double>(CpuStream&, const ConvArgs&);
template void depthwise_grad_input<float>(CpuStream&, const ConvGradInputArgs&);
template void depthwise_grad_input<double>(CpuStream&, const ConvGradInputArgs&);
template void depthwise_grad_filter<float>(CpuStream&, const ConvGradFilterArgs&);
template void depthwise_grad_filter<double>(CpuStream&, const ConvGradFilterArgs&);

}  // namespace elinvar
#endif
