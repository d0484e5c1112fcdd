#pragma once
// Images as operands of a product (operand.h). A convolution's terms are elements of images, found from a position of
// the result and a tap with its channel (NUMERICS.md, rule 10). Neither needs a division from one step to the next.
// Addresses are computed from 32-bit coordinates where they are used: products have no registers for 64-bit offsets.
#include "tensor/cuda/operand.h"
#include "tensor/ops/conv2d.h"

namespace elinvar::HWY_NAMESPACE {

// A coordinate outside every image, which it stays when others are added.
constexpr int kNowhere = 1 << 29;

// Returns the address of element c of a pixel. `bytes` is the size of a pixel.
template <class T>
__device__ const T* in_pixel(const T* x, int c, int pixel, uint32_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(x + c) +
                                    uint64_t{static_cast<uint32_t>(pixel)} * bytes);
}

// The same of chunks of channels (chunks.h), of which all pixels, that many, are side by side.
__device__ inline const Chunk* in_plane(const Chunk* x, int c, int pixel, int pixels) {
  return x + (uint64_t{static_cast<uint32_t>(c)} * static_cast<uint32_t>(pixels) + static_cast<uint32_t>(pixel));
}

// x at position (n, oh, ow) and tap (kh, kw, c): a factor of the forward pass and of the gradient of the filter.
template <class T>
struct Patches {
  struct Position {
    int h, w;   // of the first tap
    int image;  // index of pixel (n, 0, 0)
  };
  struct Tap {
    int h, w;  // relative to the first tap
    int c;     // of all channels
  };
  const T* x;
  int height, width, all_channels, channels;  // of an image, and of a group
  int out_height, out_width, kernel_width;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  // Products of these, which would take registers.
  int pixels, all_pixels, span_h, span_w, end_h, end_w, kernel_span_w;
  uint32_t pixel_bytes;

  Patches(const ConvGeometry& g, const T* data)
      : x(data),
        height(static_cast<int>(g.h)),
        width(static_cast<int>(g.w)),
        all_channels(static_cast<int>(g.c)),
        channels(static_cast<int>(g.c / g.groups)),
        out_height(static_cast<int>(g.oh)),
        out_width(static_cast<int>(g.ow)),
        kernel_width(static_cast<int>(g.kw)),
        stride_h(static_cast<int>(g.stride_h)),
        stride_w(static_cast<int>(g.stride_w)),
        pad_h(static_cast<int>(g.pad_h)),
        pad_w(static_cast<int>(g.pad_w)),
        dilation_h(static_cast<int>(g.dilation_h)),
        dilation_w(static_cast<int>(g.dilation_w)),
        pixels(height * width),
        all_pixels(static_cast<int>(g.n) * pixels),
        span_h(out_height * stride_h),
        span_w(out_width * stride_w),
        end_h(span_h - pad_h),
        end_w(span_w - pad_w),
        kernel_span_w(kernel_width * dilation_w),
        pixel_bytes(sizeof(T) * static_cast<uint32_t>(all_channels)) {}

  __device__ Position position(int i) const {
    const int row = i / out_width, n = row / out_height;
    const int h = (row - n * out_height) * stride_h - pad_h, w = (i - row * out_width) * stride_w - pad_w;
    return {h, w, n * pixels};
  }
  __device__ void advance(Position& p, int by) const {
    p.w += by * stride_w;
    while (p.w >= end_w) {
      p.w -= span_w;
      p.h += stride_h;
      if (p.h < end_h) continue;
      p.h -= span_h;
      p.image += pixels;
    }
  }

  __device__ Tap tap(int group, int k) const {
    const int at = k / channels, h = at / kernel_width * dilation_h, w = at % kernel_width * dilation_w;
    return {h, w, group * channels + (k - at * channels)};
  }
  // `end` is the end of the group's channels.
  __device__ void advance(Tap& t, int end, int by) const {
    t.c += by;
    while (t.c >= end) {
      t.c -= channels;
      t.w += dilation_w;
      if (t.w < kernel_span_w) continue;
      t.w = 0;
      t.h += dilation_h;
    }
  }

  __device__ bool has(const Position& p, const Tap& t) const {
    return static_cast<unsigned>(p.h + t.h) < static_cast<unsigned>(height) &&
           static_cast<unsigned>(p.w + t.w) < static_cast<unsigned>(width);
  }
  __device__ int pixel(const Position& p, const Tap& t) const { return p.image + (p.h + t.h) * width + (p.w + t.w); }
  __device__ const T* at(const Position& p, const Tap& t) const { return in_pixel(x, t.c, pixel(p, t), pixel_bytes); }
  bool in_fours() const {
    return channels % 4 == 0 && all_channels % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  }
};

// The operand of the forward pass: a line for each position.
template <class T>
struct PatchesOfPositions {
  static constexpr bool kAlongK = true;
  using Line = typename Patches<T>::Position;
  struct Place {
    typename Patches<T>::Tap tap;
    int end;  // of the group's channels
  };
  Patches<T> patches;

  __device__ Line line(int, int i, int) const { return patches.position(i); }
  __device__ Place place(int group, int k) const { return {patches.tap(group, k), (group + 1) * patches.channels}; }
  template <int kLines>
  __device__ void advance(Line (&)[kLines], Place& t, int by) const {
    patches.advance(t.tap, t.end, by);
  }
  __device__ bool has(const Line& p, const Place& t) const { return patches.has(p, t.tap); }
  __device__ const T* at(const Line& p, const Place& t) const {
    if constexpr (std::is_same_v<T, Chunk>)
      return in_plane(patches.x, t.tap.c, patches.pixel(p, t.tap), patches.all_pixels);
    else return patches.at(p, t.tap);
  }
};

// The operand of the gradient of the filter: a line for each tap and channel.
template <class T>
struct PatchesOfTaps {
  static constexpr bool kAlongK = false;
  using Line = typename Patches<T>::Tap;
  using Place = typename Patches<T>::Position;
  Patches<T> patches;

  __device__ Line line(int group, int j, int) const { return patches.tap(group, j); }
  __device__ Place place(int, int k) const { return patches.position(k); }
  template <int kLines>
  __device__ void advance(Line (&)[kLines], Place& p, int by) const {
    patches.advance(p, by);
  }
  __device__ bool has(const Line& t, const Place& p) const { return patches.has(p, t); }
  __device__ const T* at(const Line& t, const Place& p) const { return patches.at(p, t); }
};

// The operand of the gradient of the input: dy at the outputs to which position (n, h, w) of the input contributes
// through tap (kh, kw, o). With a stride, a position sees only taps of its own phase, h + pad and w + pad modulo the
// strides: positions of one phase are a product of their own (the batch counts phases within groups), which skips the
// other taps.
template <class T>
struct Outputs {
  static constexpr bool kAlongK = true;
  struct Line {
    int h, w;   // in strides
    int image;  // index of pixel (n, 0, 0) of dy
  };
  struct Place {
    int h, w;    // in strides, relative to the line's
    int o, end;  // of all filters, and of the group's
    int tap, batch;
  };
  const T* dy;
  int height, width;           // of the input
  int lines_high, lines_wide;  // lines per phase
  int out_height, out_width, all_filters, filters, kernel_height, kernel_width;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int all_outputs;

  Outputs(const ConvGeometry& g, const T* data)
      : dy(data),
        height(static_cast<int>(g.h)),
        width(static_cast<int>(g.w)),
        lines_high(static_cast<int>((g.h + g.stride_h - 1) / g.stride_h)),
        lines_wide(static_cast<int>((g.w + g.stride_w - 1) / g.stride_w)),
        out_height(static_cast<int>(g.oh)),
        out_width(static_cast<int>(g.ow)),
        all_filters(static_cast<int>(g.o)),
        filters(static_cast<int>(g.o / g.groups)),
        kernel_height(static_cast<int>(g.kh)),
        kernel_width(static_cast<int>(g.kw)),
        stride_h(static_cast<int>(g.stride_h)),
        stride_w(static_cast<int>(g.stride_w)),
        pad_h(static_cast<int>(g.pad_h)),
        pad_w(static_cast<int>(g.pad_w)),
        dilation_h(static_cast<int>(g.dilation_h)),
        dilation_w(static_cast<int>(g.dilation_w)),
        all_outputs(static_cast<int>(g.n) * out_height * out_width) {}

  __host__ __device__ int phases() const { return stride_h * stride_w; }
  __device__ int phase_h(int batch) const { return batch % phases() / stride_w; }
  __device__ int phase_w(int batch) const { return batch % stride_w; }

  // The index of line i among the input's positions; -1 if the phase has fewer lines.
  __device__ int64_t position(int batch, int i) const {
    if (phases() == 1) return i;
    const int row = i / lines_wide, n = row / lines_high;
    const int h = (row - n * lines_high) * stride_h + phase_h(batch),
              w = (i - row * lines_wide) * stride_w + phase_w(batch);
    return h < height && w < width ? (int64_t{n} * height + h) * width + w : -1;
  }
  // Whether the phase sees the tap. If so, h and w are the output's distance from the line's position, in strides.
  __device__ bool sees(int phase_h, int phase_w, int kh, int kw, int& h, int& w) const {
    const int down = phase_h + pad_h - kh * dilation_h, right = phase_w + pad_w - kw * dilation_w;
    h = down / stride_h, w = right / stride_w;
    return h * stride_h == down && w * stride_w == right;
  }

  __device__ Line line(int, int i, int) const {
    const int row = i / lines_wide, n = row / lines_high, h = row - n * lines_high, w = i - row * lines_wide;
    return {h, w, n * out_height * out_width};
  }
  __device__ Place place(int batch, int k) const {
    const int tap = k / filters, first = batch / phases() * filters;
    Place p{0, 0, first + (k - tap * filters), first + filters, tap, batch};
    find(p);
    return p;
  }
  template <int kLines>
  __device__ void advance(Line (&)[kLines], Place& p, int by) const {
    p.o += by;
    if (p.o < p.end) return;
    for (; p.o >= p.end; p.o -= filters) ++p.tap;
    find(p);
  }
  __device__ bool has(const Line& line, const Place& p) const {
    return static_cast<unsigned>(line.h + p.h) < static_cast<unsigned>(out_height) &&
           static_cast<unsigned>(line.w + p.w) < static_cast<unsigned>(out_width);
  }
  __device__ const T* at(const Line& line, const Place& p) const {
    const int pixel = line.image + (line.h + p.h) * out_width + (line.w + p.w);
    if constexpr (std::is_same_v<T, Chunk>) return in_plane(dy, p.o, pixel, all_outputs);
    else return in_pixel(dy, p.o, pixel, static_cast<uint32_t>(sizeof(T)) * all_filters);
  }

  // Skips steps whose terms all belong to taps that the phase does not see.
  struct Skip {
    bool none;      // skip nothing
    uint64_t seen;  // taps that are seen, of the first 64
    int filters, k_end;
    __device__ int next(int k) const {
      if (none) return k;
      while (k < k_end) {
        const int tap = k / filters, end = (tap + 1) * filters;
        if (tap >= 64 || (seen >> tap & 1) || end < k + kDepth) return k;
        k = end / kDepth * kDepth;
      }
      return k;
    }
  };
  __device__ Skip skip(int batch) const {
    uint64_t seen = 0;
    for (int tap = 0; tap < kernel_height * kernel_width && tap < 64; ++tap) {
      int h, w;
      if (sees(phase_h(batch), phase_w(batch), tap / kernel_width, tap % kernel_width, h, w))
        seen |= uint64_t{1} << tap;
    }
    return {phases() == 1, seen, filters, kernel_height * kernel_width * filters};
  }

  bool in_fours() const {
    return filters % 4 == 0 && all_filters % 4 == 0 && reinterpret_cast<uintptr_t>(dy) % 16 == 0;
  }

 private:
  __device__ void find(Place& p) const {
    if (!sees(phase_h(p.batch), phase_w(p.batch), p.tap / kernel_width, p.tap % kernel_width, p.h, p.w))
      p.h = p.w = kNowhere;
  }
};

// The filter as an operand of the gradient of the input: a line for each channel, places (kh, kw, o).
template <class T>
struct FilterOfOutputs {
  static constexpr bool kAlongK = false;
  using Line = const T*;
  struct Place {
    int o, tap;
  };
  const T* w;
  int channels, filters, taps, phases;

  __device__ Line line(int batch, int j, int) const {
    return w + int64_t{batch / phases} * filters * taps * channels + j;
  }
  __device__ Place place(int, int k) const {
    const int tap = k / filters;
    return {k - tap * filters, tap};
  }
  template <int kLines>
  __device__ void advance(Line (&)[kLines], Place& p, int by) const {
    p.o += by;
    for (; p.o >= filters; p.o -= filters) ++p.tap;
  }
  __device__ bool has(const Line&, const Place&) const { return true; }
  __device__ const T* at(const Line& line, const Place& p) const {
    return line + int64_t{p.o * taps + p.tap} * channels;
  }
  bool in_fours() const { return channels % 4 == 0 && reinterpret_cast<uintptr_t>(w) % 16 == 0; }
};

}  // namespace elinvar::HWY_NAMESPACE
