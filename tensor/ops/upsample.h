#pragma once
// Images (N, H, W, C) at another size, by the nearest pixel or bilinearly, as PyTorch's interpolate() with
// align_corners = false. Reducing an image does not average it.
//
// Position o of an axis whose `in` positions become `out` is made of
//   nearest   position floor(o * in / out), with weight 1
//   linear    with n = max(0, (2 o + 1) * in - out): position i = floor(n / (2 out)) with weight 1 - l, and position
//             i + 1 with weight l = (n mod 2 out) / (2 out), in the element type. If i is the last position, l is 0.
//
// A pixel is a sum over those with weights other than 0 in the order (h, w): the first product, then fma(a, x, sum),
// where a is the product of both weights, rounded. The gradient of a pixel (NUMERICS.md, rule 16) adds fma(a, dy, sum)
// from +0 for the results that it is part of, in the order (oh, ow).
#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// The one or two positions that a result is made of, and their weights.
template <class T>
struct UpsampleTaps {
  int64_t first;
  int count;
  T weights[2];

  constexpr T weight_of(int64_t position) const {
    const int64_t k = position - first;
    return k >= 0 && k < count ? weights[k] : T{0};
  }
};

struct UpsampleAxis {
  int64_t in = 1, out = 1;
  bool linear = false;
  ELINVAR_FIELDS(in, out, linear)

  template <class T>
  constexpr UpsampleTaps<T> taps(int64_t o) const {
    if (!linear) return {o * in / out, 1, {T{1}, T{0}}};
    const int64_t n = (2 * o + 1) * in - out, i = n / (2 * out), rest = n % (2 * out);
    if (n <= 0) return {0, 1, {T{1}, T{0}}};
    if (rest == 0 || i == in - 1) return {i, 1, {T{1}, T{0}}};
    const T next = static_cast<T>(rest) / static_cast<T>(2 * out);
    return {i, 2, {T{1} - next, next}};
  }
  // Position i is part of no results but first_output(i) .. last_output(i).
  constexpr int64_t first_output(int64_t i) const { return first_from(linear ? i - 1 : i); }
  constexpr int64_t last_output(int64_t i) const { return first_from(i + 1) - 1; }

 private:
  // Returns the first result whose first position is i or a later one.
  constexpr int64_t first_from(int64_t i) const {
    const int64_t above = linear ? (2 * i + 1) * out - in : i * out, below = linear ? 2 * in : in;
    if (i <= 0 || above <= 0) return 0;
    const int64_t first = (above + below - 1) / below;
    return first < out ? first : out;
  }
};

struct UpsampleArgs {
  In x;   // forward: (images, h.in, w.in, channels), backward: dy (images, h.out, w.out, channels)
  Out y;  // forward: (images, h.out, w.out, channels), backward: dx
  int64_t images, channels;
  UpsampleAxis h, w;
};
void upsample(CpuStream&, const UpsampleArgs&);
template <class B>
void upsample(GpuStream<B>&, const UpsampleArgs&);
void upsample_backward(CpuStream&, const UpsampleArgs&);
template <class B>
void upsample_backward(GpuStream<B>&, const UpsampleArgs&);

// x (N, h.in, w.in, C) -> (N, h.out, w.out, C). Throws UsageError for other shapes, and for extents that are not
// positive.
Tensor upsample(const Tensor& x, const UpsampleAxis& h, const UpsampleAxis& w);
Tensor upsample_backward(const Tensor& dy, const UpsampleAxis& h, const UpsampleAxis& w);

}  // namespace elinvar
