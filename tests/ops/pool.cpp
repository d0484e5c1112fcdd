#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/conv.h"
#include "tensor/ops/pool.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

struct Span {
  int64_t begin, end;
};

Span fixed(int64_t o, int64_t kernel, int64_t stride, int64_t padding) {
  return {o * stride - padding, o * stride - padding + kernel};
}

enum class PoolKind { max, whole, present };

Tensor pooled(const Tensor& x, Extent2 out, PoolKind kind, const std::function<Span(int64_t)>& rows_of,
              const std::function<Span(int64_t)>& cols_of) {
  const int64_t H = x.dim(1), W = x.dim(2), C = x.dim(3);
  Tensor y = Tensor::empty({x.dim(0), out.h, out.w, C}, DType::f64);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t c = i % C, ow = i / C % out.w, oh = i / C / out.w % out.h, n = i / C / out.w / out.h;
    const Span h = rows_of(oh), w = cols_of(ow);
    double sum = 0.0, most = -std::numeric_limits<double>::infinity(), present = 0.0;
    for (int64_t a = std::max<int64_t>(0, h.begin); a < std::min(H, h.end); ++a) {
      for (int64_t b = std::max<int64_t>(0, w.begin); b < std::min(W, w.end); ++b) {
        const double v = x.data<double>()[((n * H + a) * W + b) * C + c];
        sum += v;
        most = std::max(most, v);
        present += 1.0;
      }
    }
    const double area = static_cast<double>((h.end - h.begin) * (w.end - w.begin));
    y.data<double>()[i] = kind == PoolKind::max ? most : sum / (kind == PoolKind::whole ? area : present);
  }
  return y;
}

Tensor oracle(const Tensor& x, const Pool2dOptions& o, PoolKind kind) {
  const Extent2 out{(x.dim(1) + 2 * o.padding.h - o.kernel.h) / o.stride.h + 1,
                    (x.dim(2) + 2 * o.padding.w - o.kernel.w) / o.stride.w + 1};
  return pooled(
      x, out, kind, [&](int64_t i) { return fixed(i, o.kernel.h, o.stride.h, o.padding.h); },
      [&](int64_t i) { return fixed(i, o.kernel.w, o.stride.w, o.padding.w); });
}

Tensor adaptive_oracle(const Tensor& x, Extent2 out) {
  const auto span = [](int64_t o, int64_t in, int64_t outs) {
    return Span{o * in / outs,
                static_cast<int64_t>(std::ceil(static_cast<double>((o + 1) * in) / static_cast<double>(outs)))};
  };
  return pooled(
      x, out, PoolKind::whole, [&](int64_t i) { return span(i, x.dim(1), out.h); },
      [&](int64_t i) { return span(i, x.dim(2), out.w); });
}

OpRow max_row(const char* name, const Shape& shape, const Shape& large, const Pool2dOptions& o) {
  return {.name = name,
          .inputs = {{shape, Input::Kind::distinct}},
          .op = [o](const Vars& v) { return max_pool2d(v[0], o); },
          .oracle = [o](const Tensors& t) { return oracle(t[0], o, PoolKind::max); },
          .large = {{large, Input::Kind::distinct}}};
}

OpRow avg_row(const char* name, const Shape& shape, const Shape& large, const Pool2dOptions& o) {
  return {
      .name = name,
      .inputs = {{shape}},
      .op = [o](const Vars& v) { return avg_pool2d(v[0], o); },
      .oracle =
          [o](const Tensors& t) { return oracle(t[0], o, o.count_include_pad ? PoolKind::whole : PoolKind::present); },
      .large = {{large}}};
}

OpRow adaptive_row(const char* name, const Shape& shape, const Shape& large, Extent2 out) {
  return {.name = name,
          .inputs = {{shape}},
          .op = [out](const Vars& v) { return adaptive_avg_pool2d(v[0], out); },
          .oracle = [out](const Tensors& t) { return adaptive_oracle(t[0], out); },
          .large = {{large}}};
}

OpRow with_errors(OpRow row, std::vector<std::pair<std::function<void()>, std::string>> errors) {
  row.errors = std::move(errors);
  return row;
}

Var images() { return Tensor::zeros({1, 4, 4, 2}); }

const OpRows pool_rows({
    with_errors(
        max_row("max_pool2d", {2, 4, 6, 3}, {3, 32, 32, 33}, {}),
        {{[] {
            max_pool2d(images(), {.kernel = {0, 2}});
          },
          "[max_pool2d] kernel and stride must be positive"},
         {[] {
            max_pool2d(images(), {.padding = {2, 0}});
          },
          "[max_pool2d] padding must be between 0 and half"},
         {[] {
            max_pool2d(images(), {.kernel = {2, 5}});
          },
          "[max_pool2d] a window of 5 does not fit into 4"},
         {[] {
            max_pool2d(Tensor::zeros({4, 4, 2}), {});
          },
          "[max_pool2d] images (N, H, W, C) expected"},
         {[] {
            max_pool2d(Tensor::zeros({1, 4, 4, 2}, DType::i32), {});
          },
          "[max_pool2d] float32 or float64"},
         {[] {
            const PoolAxis axis = pool_axis("max_pool2d", 4, 2, 2, 0);
            max_pool_backward(Tensor::zeros({1, 2, 2, 2}), Tensor::zeros({1, 2, 2, 1}), axis, axis);
          },
          "[max_pool2d_backward] the winners must be float32 of shape (1, 2, 2, 2), got float32 of shape (1, 2, 2, 1)"},
         {[] {
            const PoolAxis axis{.in = 4, .out = 9, .kernel = 2, .stride = 2};
            max_pool(images().value(), axis, axis, nullptr);
          },
          "[max_pool2d] 4 positions do not become 9 by windows of 2, 2 apart"},
         {[] {
            const PoolAxis axis{.in = 4, .out = 2, .kernel = 2, .stride = 0};
            max_pool(images().value(), axis, axis, nullptr);
          },
          "[max_pool2d] kernel and stride must be positive"},
         {[] {
            const PoolAxis axis = adaptive_pool_axis("max_pool2d", 4, 2);
            max_pool(images().value(), axis, axis, nullptr);
          },
          "[max_pool2d] adaptive windows are for means only"}}),
    max_row("max_pool2d_overlapping", {2, 7, 6, 3}, {2, 29, 30, 64},
            {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}),
    max_row("max_pool2d_uneven", {1, 9, 8, 2}, {2, 40, 31, 17},
            {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}),
    with_errors(avg_row("avg_pool2d", {2, 4, 6, 3}, {3, 32, 32, 33}, {}),
                {{[] {
                    avg_pool2d(images(), {.stride = {1, 0}});
                  },
                  "[avg_pool2d] kernel and stride must be positive"}}),
    avg_row("avg_pool2d_padded", {2, 7, 6, 3}, {2, 29, 30, 20},
            {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}),
    avg_row("avg_pool2d_present", {2, 7, 6, 3}, {2, 29, 30, 20},
            {.kernel = {3, 4}, .stride = {2, 1}, .padding = {1, 2}, .count_include_pad = false}),
    avg_row("avg_pool2d_long", {1, 20, 20, 2}, {2, 40, 40, 18},
            {.kernel = {19, 18}, .stride = {3, 3}, .padding = {9, 4}}),
    with_errors(adaptive_row("adaptive_avg_pool2d", {2, 5, 7, 3}, {2, 23, 31, 40}, {3, 4}),
                {{[] {
                    adaptive_avg_pool2d(images(), {0, 1});
                  },
                  "[adaptive_avg_pool2d] extents must be positive"},
                 {[] {
                    adaptive_avg_pool2d(Tensor::zeros({4, 4, 2}), {});
                  },
                  "[adaptive_avg_pool2d] images (N, H, W, C)"}}),
    adaptive_row("adaptive_avg_pool2d_global", {2, 4, 3, 5}, {4, 17, 16, 70}, {1, 1}),
    adaptive_row("adaptive_avg_pool2d_larger", {1, 3, 2, 2}, {2, 5, 6, 19}, {7, 4}),
});

}  // namespace
}  // namespace elinvar::test
