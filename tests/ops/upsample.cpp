#include "tensor/ops/upsample.h"

#include <algorithm>
#include <cmath>

#include "autograd/conv.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// The two positions that PyTorch's formulas name, in float64, and the weight of the second.
struct Between {
  int64_t low, high;
  double weight;
};

Between between(int64_t o, int64_t in, int64_t out, bool linear) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  if (!linear) return {o * in / out, o * in / out, 0};
  const double at = std::max(0.0, (static_cast<double>(o) + 0.5) * scale - 0.5);
  const auto low = std::min(static_cast<int64_t>(at), in - 1);
  return {low, std::min(low + 1, in - 1), at - static_cast<double>(low)};
}

Tensor upsample_oracle(const Tensor& x, Extent2 out, bool linear) {
  const int64_t H = x.dim(1), W = x.dim(2), C = x.dim(3);
  Tensor y = Tensor::empty({x.dim(0), out.h, out.w, C}, DType::f64);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t c = i % C, n = i / C / out.w / out.h;
    const Between h = between(i / C / out.w % out.h, H, out.h, linear), w = between(i / C % out.w, W, out.w, linear);
    const auto at = [&](int64_t row, int64_t column) { return x.data<double>()[((n * H + row) * W + column) * C + c]; };
    y.data<double>()[i] = (1 - h.weight) * ((1 - w.weight) * at(h.low, w.low) + w.weight * at(h.low, w.high)) +
                          h.weight * ((1 - w.weight) * at(h.high, w.low) + w.weight * at(h.high, w.high));
  }
  return y;
}

OpRow upsample_row(const char* name, bool linear, const Shape& shape, Extent2 out, const Shape& large,
                   Extent2 large_out) {
  const auto out_of = [=](const Shape& given) { return given == large ? large_out : out; };
  return {.name = name,
          .inputs = {{shape}},
          .op =
              [=](const Vars& v) {
                const Extent2 size = out_of(v[0].shape());
                return linear ? upsample_bilinear(v[0], size) : upsample_nearest(v[0], size);
              },
          .oracle = [=](const Tensors& t) { return upsample_oracle(t[0], out_of(t[0].shape()), linear); },
          .large = {{large}}};
}

OpRow refusing(OpRow row) {
  row.errors = {{[] {
                   upsample_nearest(Tensor::zeros({4, 4, 2}), {8, 8});
                 },
                 "[upsample_nearest] images (N, H, W, C) expected, shape is (4, 4, 2)"},
                {[] {
                   upsample_bilinear(Tensor::zeros({1, 4, 4, 2}), {0, 8});
                 },
                 "[upsample] extents must be positive, got 4 x 4 in and 0 x 8 out"},
                {[] {
                   upsample_nearest(Tensor::zeros({1, 4, 4, 2}, DType::i32), {8, 8});
                 },
                 "[upsample] float32 or float64"},
                {[] {
                   upsample_backward(Tensor::zeros({1, 4, 4, 2}), {2, 4, false}, {2, 5, false});
                 },
                 "[upsample_backward] images (N, 4, 5, C) expected, shape is (1, 4, 4, 2)"}};
  return row;
}

const OpRows upsample_rows({
    refusing(upsample_row("upsample_nearest", false, {2, 3, 4, 3}, {6, 8}, {2, 13, 11, 70}, {26, 22})),
    upsample_row("upsample_nearest_uneven", false, {2, 3, 5, 2}, {7, 3}, {2, 11, 17, 19}, {29, 8}),
    upsample_row("upsample_bilinear", true, {2, 3, 4, 3}, {6, 8}, {2, 13, 11, 70}, {26, 22}),
    upsample_row("upsample_bilinear_uneven", true, {2, 3, 5, 2}, {7, 11}, {2, 11, 17, 19}, {29, 40}),
    upsample_row("upsample_bilinear_smaller", true, {1, 9, 7, 2}, {2, 5}, {2, 40, 31, 17}, {9, 30}),
    upsample_row("upsample_bilinear_of_one", true, {2, 1, 2, 3}, {3, 1}, {3, 1, 6, 20}, {5, 4}),
});

}  // namespace
}  // namespace elinvar::test
