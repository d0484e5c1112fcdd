#pragma once
// Positions of an image whose taps fall on the same places of another image, for the forward pass and the input
// gradient of a convolution. Each axis is cut into stretches of evenly spaced positions that have the same taps; a
// stretch of rows and one of columns form a source of rows for Product, so that no tap is multiplied by padding
// (NUMERICS.md, rule 7).
#include <vector>

#include "tensor/ops/conv2d.h"
#include "tensor/product.h"

namespace elinvar {

struct AxisTap {
  int64_t k;       // index in the filter
  int64_t offset;  // source coordinate minus that of the position
};

// Positions 0 .. count-1 along an axis: position i is target coordinate target + i * target_step, and its taps read
// around source coordinate source + i * source_step.
struct Stretch {
  int64_t count;
  int64_t target, target_step;
  int64_t source, source_step;
  std::vector<AxisTap> taps;  // ascending in k
};

// One axis of a convolution.
struct ConvAxis {
  int64_t in, out, kernel, stride, pad, dilation;
};
inline ConvAxis vertical(const ConvGeometry& g) { return {g.h, g.oh, g.kh, g.stride_h, g.pad_h, g.dilation_h}; }
inline ConvAxis horizontal(const ConvGeometry& g) { return {g.w, g.ow, g.kw, g.stride_w, g.pad_w, g.dilation_w}; }

// forward_axis() returns stretches that cover the output, with taps in the input; backward_axis() returns stretches
// that cover the input, with taps in the output.
std::vector<Stretch> forward_axis(const ConvAxis& axis);
std::vector<Stretch> backward_axis(const ConvAxis& axis);

// Returns the input by phases of the stride, each with all its taps, including those outside the output.
std::vector<Stretch> backward_phases(const ConvAxis& axis);

// Calls f(k, pixel, count) for the output positions [k0, k1) for which the tap (kh, kw) falls into the image, one row
// of output pixels at a time: positions k .. k + count - 1 read pixels (of (n, h, w)) pixel, pixel + stride_w, ...
template <class F>
void for_each_tap_row(const ConvGeometry& g, int64_t kh, int64_t kw, int64_t k0, int64_t k1, F&& f) {
  const int64_t dy = kh * g.dilation_h - g.pad_h, dx = kw * g.dilation_w - g.pad_w;
  // ow * stride + dx lies in [0, w) for ow in [first, last).
  const int64_t first = dx >= 0 ? 0 : (-dx + g.stride_w - 1) / g.stride_w;
  const int64_t last = dx >= g.w ? 0 : std::min(g.ow, (g.w - 1 - dx) / g.stride_w + 1);
  int64_t oh = k0 / g.ow % g.oh, n = k0 / (g.ow * g.oh);
  for (int64_t k = k0 - k0 % g.ow; k < k1; k += g.ow) {  // the row's first position
    const int64_t from = std::max(k0, k + first), to = std::min(k1, k + last), y = oh * g.stride_h + dy;
    if (y >= 0 && y < g.h && from < to) f(from, (n * g.h + y) * g.w + (from - k) * g.stride_w + dx, to - from);
    if (++oh == g.oh) oh = 0, ++n;
  }
}

// Channels [first, first + channels) of images (n, h, w, c), whose channels are adjacent.
template <class T>
struct ImageChannels {
  T* data;
  int64_t n, h, w, c, first, channels;
  T* at(int64_t image, int64_t y, int64_t x) const { return data + ((image * h + y) * w + x) * c + first; }
};

template <class T>
class PositionRows {
 public:
  // `exponents` has one for each image, if elements are pairs.
  PositionRows(const ImageChannels<const T>& source, const ImageChannels<ResultOf<T>>& target, const Stretch& y,
               const Stretch& x, int64_t filter_width, const int32_t* exponents)
      : source_(source), target_(target), y_(y), x_(x), exponents_(exponents) {
    for (const AxisTap& v : y.taps) {
      int64_t last = x.taps.empty() ? 0 : x.taps.front().offset;
      for (const AxisTap& u : x.taps) last = std::max(last, u.offset);
      for (int64_t back = 0; back < std::min<int64_t>(x.source_step, static_cast<int64_t>(x.taps.size())); ++back)
        new_pixels_.push_back((v.offset * source.w + last - back) * source.c);
      for (const AxisTap& u : x.taps) {
        const Span tap{(v.k * filter_width + u.k) * source.channels, (v.offset * source.w + u.offset) * source.c,
                       source.channels};
        Span* previous = spans_.empty() ? nullptr : &spans_.back();
        if (previous && previous->k + previous->length == tap.k && previous->offset + previous->length == tap.offset)
          previous->length += tap.length;  // taps adjacent in the image
        else spans_.push_back(tap);
      }
    }
  }

  int64_t rows() const { return source_.n * y_.count * x_.count; }
  int64_t a_step() const { return 1; }
  const std::vector<Span>& spans() const { return spans_; }
  // The offsets of pixels that a position reads, and the one before it in a row did not.
  const std::vector<int64_t>& new_pixels() const { return new_pixels_; }
  struct Place {
    int64_t n, y, x;
  };
  Place place(int64_t row) const { return {row / (x_.count * y_.count), row / x_.count % y_.count, row % x_.count}; }
  TileRows<T> tile(Place& place, int rows) const {
    TileRows<T> t;
    const int64_t a_step = x_.source_step * source_.c, c_step = x_.target_step * target_.c;
    int r = 0;
    while (r < rows && place.n < source_.n) {  // stretches of the image's rows
      const T* a = source_.at(place.n, y_.source + place.y * y_.source_step, x_.source + place.x * x_.source_step);
      ResultOf<T>* c = target_.at(place.n, y_.target + place.y * y_.target_step, x_.target + place.x * x_.target_step);
      const int end = static_cast<int>(std::min<int64_t>(rows, r + x_.count - place.x));
      place.x += end - r;
      for (; r < end; ++r, a += a_step, c += c_step) {
        t.a[r] = a, t.c[r] = c;
        if constexpr (std::is_same_v<T, Pair>) t.exponents[r] = exponents_[place.n];
      }
      if (place.x < x_.count) continue;
      place.x = 0;
      if (++place.y == y_.count) place.y = 0, ++place.n;
    }
    t.count = r;
    for (; r < rows; ++r) {
      t.a[r] = t.a[r - 1], t.c[r] = t.c[r - 1];
      if constexpr (std::is_same_v<T, Pair>) t.exponents[r] = t.exponents[r - 1];
    }
    return t;
  }

 private:
  ImageChannels<const T> source_;
  ImageChannels<ResultOf<T>> target_;
  Stretch y_, x_;
  const int32_t* exponents_;
  std::vector<Span> spans_;
  std::vector<int64_t> new_pixels_;
};

// Returns one for each pair of stretches.
template <class T>
std::vector<PositionRows<T>> position_rows(const ImageChannels<const T>& source,
                                           const ImageChannels<ResultOf<T>>& target, const std::vector<Stretch>& ys,
                                           const std::vector<Stretch>& xs, int64_t filter_width,
                                           const int32_t* exponents = nullptr) {
  std::vector<PositionRows<T>> all;
  for (const Stretch& y : ys)
    for (const Stretch& x : xs) all.emplace_back(source, target, y, x, filter_width, exponents);
  return all;
}

}  // namespace elinvar
