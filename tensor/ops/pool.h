#pragma once
// Max and average pooling of images (N, H, W, C). Output position o of an axis sees input positions
// begin(o) .. end(o) - 1; those outside the image are absent.
//
// Maximum: over the present positions of a window in the order (h, w), the first is taken and then replaced
// by each v with best < v, or by a v that is NaN when best is not. So the lowest index wins at ties, including those
// between zeros of either sign, and the first NaN stays. The position of the winner in its window, h * kernel.w + w, is
// stored exactly in the element type, so that it fits in the lanes of its value.
//
// Average: the sum over the window by NUMERICS.md, rule 12 (chains of 64 positions in the order (h, w), absent
// ones counted as zeros), divided once by the window's area, or by the number of present positions.
//
// Gradients are gathers (rule 16): at an input position, the terms of the windows that contain it are added from +0 in
// the order (oh, ow). A term is dy where the position won; for an average it is dy / divisor.
#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// One axis of a pooling. Fixed windows: kernel positions from o * stride - padding on. Adaptive ones (kernel
// 0): floor(o * in / out) .. ceil((o + 1) * in / out).
struct PoolAxis {
  int64_t in = 1, out = 1, kernel = 0, stride = 1, padding = 0;
  ELINVAR_FIELDS(in, out, kernel, stride, padding)
  bool operator==(const PoolAxis&) const = default;

  constexpr int64_t begin(int64_t o) const { return kernel > 0 ? o * stride - padding : o * in / out; }
  constexpr int64_t end(int64_t o) const {
    return kernel > 0 ? o * stride - padding + kernel : ((o + 1) * in + out - 1) / out;
  }
  // The outputs whose windows contain position i are first_output(i) .. last_output(i); the range may be empty.
  constexpr int64_t first_output(int64_t i) const {
    if (kernel == 0) return i * out / in;
    const int64_t past = i + padding - kernel;  // the last window that ends before i starts at or before this
    return past < 0 ? 0 : past / stride + 1;
  }
  constexpr int64_t last_output(int64_t i) const {
    if (kernel == 0) return ((i + 1) * out + in - 1) / in - 1;
    const int64_t last = (i + padding) / stride;
    return last < out ? last : out - 1;
  }
};

// The present part of an axis' window, and the beginning and extent of the whole window.
struct PoolWindow {
  int64_t origin, begin, end, extent;
  constexpr PoolWindow(const PoolAxis& a, int64_t o)
      : origin(a.begin(o)),
        begin(origin > 0 ? origin : 0),
        end(a.end(o) < a.in ? a.end(o) : a.in),
        extent(a.end(o) - origin) {}
};

// The divisor of an average over a window.
constexpr int64_t pool_divisor(const PoolWindow& h, const PoolWindow& w, bool present_only) {
  return present_only ? (h.end - h.begin) * (w.end - w.begin) : h.extent * w.extent;
}

struct PoolArgs {
  In x;
  Out y, winner;  // winner: y's shape, maximum only; data may be null
  int64_t images, channels;
  PoolAxis h, w;
  bool present_only = false;  // whether the divisor of an average leaves out absent positions
};
void max_pool(CpuStream&, const PoolArgs&);
template <class B>
void max_pool(GpuStream<B>&, const PoolArgs&);
void avg_pool(CpuStream&, const PoolArgs&);
template <class B>
void avg_pool(GpuStream<B>&, const PoolArgs&);

struct PoolBackwardArgs {
  In dy, winner;
  Out dx;
  int64_t images, channels;
  PoolAxis h, w;
  bool present_only = false;
};
void max_pool_backward(CpuStream&, const PoolBackwardArgs&);
template <class B>
void max_pool_backward(GpuStream<B>&, const PoolBackwardArgs&);
void avg_pool_backward(CpuStream&, const PoolBackwardArgs&);
template <class B>
void avg_pool_backward(GpuStream<B>&, const PoolBackwardArgs&);

// Returns the axis of a pooling with fixed windows, which must overlap the image. Throws UsageError, naming op, unless
// kernel and stride are positive, 0 <= 2 * padding <= kernel, and at least one window fits.
PoolAxis pool_axis(const char* op, int64_t in, int64_t kernel, int64_t stride, int64_t padding);
PoolAxis adaptive_pool_axis(const char* op, int64_t in, int64_t out);

// x (N, H, W, C) -> (N, h.out, w.out, C); `winner` receives the winners if not null. Windows of maxima are fixed.
Tensor max_pool(const Tensor& x, const PoolAxis& h, const PoolAxis& w, Tensor* winner);
Tensor max_pool_backward(const Tensor& dy, const Tensor& winner, const PoolAxis& h, const PoolAxis& w);
Tensor avg_pool(const Tensor& x, const PoolAxis& h, const PoolAxis& w, bool present_only);
Tensor avg_pool_backward(const Tensor& dy, const PoolAxis& h, const PoolAxis& w, bool present_only);

}  // namespace elinvar
