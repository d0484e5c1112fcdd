#include <cmath>

#include "autograd/conv.h"
#include "autograd/linear.h"
#include "autograd/shape.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/concat.h"
#include "tensor/ops/conv2d.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// a (.., m, k) x b (.., k, n), b with or without a batch.
Tensor matmul_oracle(const Tensor& a, const Tensor& b) {
  const int64_t m = a.dim(-2), k = a.dim(-1), n = b.dim(-1), batch = a.numel() / (m * k);
  Shape shape = a.shape();
  shape[shape.ndim() - 1] = n;
  Tensor c = Tensor::zeros(shape, DType::f64);
  for (int64_t i = 0; i < batch; ++i) {
    const double* x = a.data<double>() + i * m * k;
    const double* y = b.data<double>() + (b.ndim() == 2 ? 0 : i * k * n);
    double* z = c.data<double>() + i * m * n;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t p = 0; p < k; ++p) z[r * n + j] += x[r * k + p] * y[p * n + j];
  }
  return c;
}

Tensor linear_oracle(const Tensors& t) {
  Tensor y = matmul_oracle(t[0], t[1].transpose(0, 1).clone());
  const int64_t n = y.dim(-1);
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] += t[2].data<double>()[i % n];
  return y;
}

// k is twice as long and every other product is zero: the zeros add nothing. The chunks must not move, so k stays
// short.
Var matmul_zero_filled(const Vars& v) {
  const int64_t m = v[0].dim(0), k = v[0].dim(1), n = v[1].dim(1);
  const Var a = reshape(concat({reshape(v[0], {m, k, 1}), Tensor::zeros({m, k, 1}, v[0].dtype())}, 2), {m, 2 * k});
  const Var b = reshape(concat({reshape(v[1], {k, 1, n}), Tensor::full({k, 1, n}, -3.0, v[1].dtype())}, 1), {2 * k, n});
  return matmul(a, b);
}

Tensor conv_oracle(const Tensor& x, const Tensor& w, const Conv2dOptions& o) {
  const int64_t n = x.dim(0), h = x.dim(1), wd = x.dim(2), c = x.dim(3), f = w.dim(0), kh = w.dim(1), kw = w.dim(2),
                cg = w.dim(3);
  const int64_t oh = (h + 2 * o.padding.h - o.dilation.h * (kh - 1) - 1) / o.stride.h + 1;
  const int64_t ow = (wd + 2 * o.padding.w - o.dilation.w * (kw - 1) - 1) / o.stride.w + 1;
  Tensor y = Tensor::zeros({n, oh, ow, f}, DType::f64);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t i = 0; i < oh; ++i)
      for (int64_t j = 0; j < ow; ++j)
        for (int64_t q = 0; q < f; ++q) {
          double sum = 0.0;
          for (int64_t u = 0; u < kh; ++u)
            for (int64_t v = 0; v < kw; ++v) {
              const int64_t r = i * o.stride.h - o.padding.h + u * o.dilation.h,
                            s = j * o.stride.w - o.padding.w + v * o.dilation.w;
              if (r < 0 || r >= h || s < 0 || s >= wd) continue;
              for (int64_t k = 0; k < cg; ++k)
                sum += x.data<double>()[((b * h + r) * wd + s) * c + q / (f / o.groups) * cg + k] *
                       w.data<double>()[((q * kh + u) * kw + v) * cg + k];
            }
          y.data<double>()[((b * oh + i) * ow + j) * f + q] = sum;
        }
  return y;
}

// Writes the padding out as zeros and convolves without padding.
Var conv_zero_filled(const Vars& v, Conv2dOptions o) {
  const Extent2 p = o.padding;
  o.padding = {0, 0};
  return conv2d(pad(v[0], {0, p.h, p.w, 0}, {0, p.h, p.w, 0}), v[1], {}, o);
}

// The number of groups follows from the shapes.
Conv2dOptions grouped(Conv2dOptions o, int64_t image_channels, int64_t filter_channels) {
  o.groups = image_channels / filter_channels;
  return o;
}

// Each pixel adds its filter, scaled, to the pixels below it.
Tensor conv_transpose_oracle(const Tensor& x, const Tensor& w, const Conv2dOptions& o) {
  const int64_t n = x.dim(0), h = x.dim(1), wd = x.dim(2), c = x.dim(3), kh = w.dim(1), kw = w.dim(2), f = w.dim(3);
  const int64_t oh = (h - 1) * o.stride.h - 2 * o.padding.h + o.dilation.h * (kh - 1) + 1,
                ow = (wd - 1) * o.stride.w - 2 * o.padding.w + o.dilation.w * (kw - 1) + 1;
  Tensor y = Tensor::zeros({n, oh, ow, f}, DType::f64);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t i = 0; i < h; ++i)
      for (int64_t j = 0; j < wd; ++j)
        for (int64_t u = 0; u < kh; ++u)
          for (int64_t v = 0; v < kw; ++v) {
            const int64_t r = i * o.stride.h - o.padding.h + u * o.dilation.h,
                          s = j * o.stride.w - o.padding.w + v * o.dilation.w;
            if (r < 0 || r >= oh || s < 0 || s >= ow) continue;
            for (int64_t q = 0; q < f; ++q)
              for (int64_t k = 0; k < c; ++k)
                y.data<double>()[((b * oh + r) * ow + s) * f + q] += x.data<double>()[((b * h + i) * wd + j) * c + k] *
                                                                     w.data<double>()[((k * kh + u) * kw + v) * f + q];
          }
  return y;
}

OpRow conv_transpose_row(const char* name, Inputs inputs, Inputs large, const Conv2dOptions& o) {
  return {.name = name,
          .inputs = std::move(inputs),
          .op = [o](const Vars& v) { return conv_transpose2d(v[0], v[1], {}, o); },
          .oracle = [o](const Tensors& t) { return conv_transpose_oracle(t[0], t[1], o); },
          .large = std::move(large)};
}

OpRow conv_row(const char* name, Inputs inputs, Inputs large, const Conv2dOptions& o) {
  return {.name = name,
          .inputs = std::move(inputs),
          .op = [o](const Vars& v) { return conv2d(v[0], v[1], {}, grouped(o, v[0].dim(3), v[1].dim(3))); },
          .oracle = [o](const Tensors& t) { return conv_oracle(t[0], t[1], grouped(o, t[0].dim(3), t[1].dim(3))); },
          .large = std::move(large),
          .zero_filled = [o](const Vars& v) { return conv_zero_filled(v, grouped(o, v[0].dim(3), v[1].dim(3))); }};
}

Tensor attention_oracle(const Tensors& t, bool causal) {
  const Tensor &q = t[0], &k = t[1], &v = t[2];
  const int64_t batch = q.dim(0), tq = q.dim(1), h = q.dim(2), d = q.dim(3), tk = k.dim(1), g = k.dim(2);
  Tensor o = Tensor::zeros(q.shape(), DType::f64);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t a = 0; a < h; ++a)
      for (int64_t i = 0; i < tq; ++i) {
        const int64_t n = causal ? i + 1 + tk - tq : tk;
        std::vector<double> e(static_cast<size_t>(n));
        double l = 0.0;
        for (int64_t j = 0; j < n; ++j) {
          double s = 0.0;
          for (int64_t p = 0; p < d; ++p)
            s += q.data<double>()[((b * tq + i) * h + a) * d + p] *
                 k.data<double>()[((b * tk + j) * g + a / (h / g)) * d + p];
          l += e[static_cast<size_t>(j)] = std::exp(s / std::sqrt(static_cast<double>(d)));
        }
        for (int64_t j = 0; j < n; ++j)
          for (int64_t p = 0; p < d; ++p)
            o.data<double>()[((b * tq + i) * h + a) * d + p] +=
                e[static_cast<size_t>(j)] / l * v.data<double>()[((b * tk + j) * g + a / (h / g)) * d + p];
      }
  return o;
}

Tensor part(const Tensor& qkv, int64_t i) { return qkv.select(2, i).clone(); }

const OpRows product_rows({
    {.name = "matmul",
     .inputs = {{{5, 7}}, {{7, 3}}},
     .op = [](const Vars& v) { return matmul(v[0], v[1]); },
     .oracle = [](const Tensors& t) { return matmul_oracle(t[0], t[1]); },
     .large = {{{70, 1100}}, {{1100, 130}}},
     .zero_filled = matmul_zero_filled,
     .errors = {{[] {
                   matmul(Tensor::zeros({2, 3}), Tensor::zeros({4, 5}));
                 },
                 "[matmul] inner extents must match, shapes are (2, 3) and (4, 5)"},
                {[] {
                   matmul(Tensor::zeros({3}), Tensor::zeros({3, 5}));
                 },
                 "[matmul] matrices expected"},
                {[] {
                   matmul(Tensor::zeros({2, 2, 3}), Tensor::zeros({4, 3, 5}));
                 },
                 "do not broadcast"}}},
    {.name = "matmul_batched",
     .inputs = {{{2, 3, 4, 5}}, {{2, 3, 5, 6}}},
     .op = [](const Vars& v) { return matmul(v[0], v[1]); },
     .oracle = [](const Tensors& t) { return matmul_oracle(t[0], t[1]); },
     .large = {{{3, 2, 33, 65}}, {{3, 2, 65, 50}}}},
    {.name = "matmul_broadcast",
     .inputs = {{{3, 4, 5}}, {{5, 6}}},
     .op = [](const Vars& v) { return matmul(v[0], v[1]); },
     .oracle = [](const Tensors& t) { return matmul_oracle(t[0], t[1]); }},
    {.name = "matmul_column",  // one column of a wider matrix: its steps are those of the matrix
     .inputs = {{{4, 5}}, {{1, 3}}},
     .op = [](const Vars& v) { return matmul(slice(v[0], 1, 1, 2), v[1]); },
     .oracle = [](const Tensors& t) { return matmul_oracle(t[0].slice(1, 1, 2).clone(), t[1]); },
     .large = {{{70, 9}}, {{1, 130}}}},
    {.name = "matmul_columns",  // a column, then a row, of every matrix of a batch
     .inputs = {{{2, 4, 5}}, {{2, 6, 3}}},
     .op = [](const Vars& v) { return matmul(slice(v[0], 2, 0, 1), slice(v[1], 1, 2, 3)); },
     .oracle =
         [](const Tensors& t) { return matmul_oracle(t[0].slice(2, 0, 1).clone(), t[1].slice(1, 2, 3).clone()); }},
    {.name = "matmul_by_column",  // the right side is a column, the left a transposed one
     .inputs = {{{6, 4}}, {{6, 5}}},
     .op = [](const Vars& v) { return matmul(transpose(slice(v[0], 1, 2, 3), 0, 1), slice(v[1], 1, 0, 1)); },
     .oracle =
         [](const Tensors& t) {
           return matmul_oracle(t[0].slice(1, 2, 3).transpose(0, 1).clone(), t[1].slice(1, 0, 1).clone());
         }},
    {.name = "matmul_joined_columns",  // the gradient of a column is a column of the joined gradient
     .inputs = {{{4, 2}}, {{2, 1}}, {{2, 1}}},
     .op =
         [](const Vars& v) {
           return concat({matmul(v[0], v[1]), matmul(v[0], v[2])}, 1);
         },
     .oracle =
         [](const Tensors& t) {
           return matmul_oracle(t[0], concat(Tensors{t[1], t[2]}, 1));
         },
     .large = {{{70, 33}}, {{33, 1}}, {{33, 1}}}},
    {.name = "matmul_many_groups",  // k spans more than one group of chunks
     .inputs = {{{2, 6}}, {{6, 2}}},
     .op = [](const Vars& v) { return matmul(v[0], v[1]); },
     .oracle = [](const Tensors& t) { return matmul_oracle(t[0], t[1]); },
     .large = {{{9, 17000}}, {{17000, 20}}}},
    {.name = "linear",
     .inputs = {{{2, 3, 5}}, {{4, 5}}, {{4}}},
     .op = [](const Vars& v) { return linear(v[0], v[1], v[2]); },
     .oracle = linear_oracle,
     .large = {{{3, 100, 70}}, {{90, 70}}, {{90}}},
     .errors = {{[] {
                   linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 5}));
                 },
                 "[linear] the last extent of the input (2, 3) must be that of weight (4, 5)"},
                {[] {
                   linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), Tensor::zeros({5}));
                 },
                 "[matmul] the bias must be float32 of shape (4,), got float32 of shape (5,)"}}},
    {.name = "conv2d",
     .inputs = {{{2, 5, 6, 3}}, {{4, 3, 3, 3}}, {{4}}},
     .op =
         [](const Vars& v) {
           return conv2d(v[0], v[1], v[2], {.padding = {1, 1}});
         },
     .oracle =
         [](const Tensors& t) {
           Tensor y = conv_oracle(t[0], t[1], {.padding = {1, 1}});
           for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] += t[2].data<double>()[i % 4];
           return y;
         },
     .errors =
         {{[] {
             conv2d(Tensor::zeros({1, 5, 5, 3}), Tensor::zeros({4, 3, 3, 2}));
           },
           "[conv2d] channels must match"},
          {[] {
             conv2d(Tensor::zeros({1, 2, 2, 3}), Tensor::zeros({4, 3, 3, 3}));
           },
           "[conv2d] filters (4, 3, 3, 3) are larger"},
          {[] {
             conv2d(Tensor::zeros({5, 5, 3}), Tensor::zeros({4, 3, 3, 3}));
           },
           "[conv2d] images (N, H, W, C)"},
          {[] {
             conv2d(Tensor::zeros({1, 5, 5, 3}), Tensor::zeros({4, 3, 3, 3}), {}, {.stride = {0, 1}});
           },
           "[conv2d] stride"},
          {[] {
             conv2d(Tensor::zeros({1, 5, 5, 0}), Tensor::zeros({4, 3, 3, 0}));
           },
           "[conv2d] filters with elements expected"},
          {[] {
             conv2d(Tensor::zeros({1, 5, 5, 3}), Tensor::zeros({4, 0, 3, 3}));
           },
           "[conv2d] filters with elements expected"},
          {[] {
             conv2d_grad_input(Tensor::zeros({1, 5, 5, 4}), Tensor::zeros({4, 3, 3, 3}), {1, 5, 5, 3}, {});
           },
           "[conv2d_grad] the gradient must have the result's shape (1, 3, 3, 4), got (1, 5, 5, 4)"},
          {[] {
             conv2d_grad_filter(Tensor::zeros({1, 3, 3, 4}, DType::f64), Tensor::zeros({1, 5, 5, 3}), {4, 3, 3, 3}, {});
           },
           "[conv2d_grad] operands must have one dtype"}}},
    conv_transpose_row("conv_transpose2d", {{{2, 3, 4, 3}}, {{3, 2, 2, 4}}}, {{{2, 13, 11, 20}}, {{20, 2, 2, 24}}},
                       {.stride = {2, 2}}),
    conv_transpose_row("conv_transpose2d_overlapping", {{{1, 4, 3, 2}}, {{2, 3, 3, 3}}},
                       {{{2, 9, 10, 17}}, {{17, 3, 3, 9}}}, {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}}),
    conv_row("conv2d_padded", {{{1, 5, 6, 3}}, {{4, 3, 3, 3}}}, {{{2, 33, 31, 20}}, {{24, 3, 3, 20}}},
             {.padding = {1, 1}}),
    conv_row("conv2d_strided", {{{1, 7, 8, 2}}, {{3, 3, 3, 2}}}, {{{2, 31, 30, 16}}, {{40, 3, 3, 16}}},
             {.stride = {2, 2}, .padding = {1, 1}}),
    conv_row("conv2d_first_layer", {{{1, 9, 9, 3}}, {{2, 7, 7, 3}}}, {{{2, 40, 41, 3}}, {{16, 7, 7, 3}}},
             {.stride = {2, 2}, .padding = {3, 3}}),
    conv_row("conv2d_1x1_strided", {{{1, 5, 5, 4}}, {{3, 1, 1, 4}}}, {{{2, 15, 14, 80}}, {{72, 1, 1, 80}}},
             {.stride = {2, 2}}),
    conv_row("conv2d_dilated", {{{1, 7, 9, 2}}, {{3, 3, 3, 2}}}, {{{2, 20, 21, 17}}, {{9, 3, 3, 17}}},
             {.padding = {2, 2}, .dilation = {2, 2}}),
    conv_row("conv2d_uneven", {{{1, 8, 7, 2}}, {{3, 2, 3, 2}}}, {{{2, 20, 21, 17}}, {{9, 2, 3, 17}}},
             {.stride = {3, 2}, .padding = {0, 2}, .dilation = {2, 1}}),
    conv_row("conv2d_grouped", {{{1, 5, 5, 6}}, {{4, 3, 3, 3}}}, {{{2, 12, 12, 48}}, {{32, 3, 3, 24}}},
             {.padding = {1, 1}}),
    conv_row("conv2d_depthwise", {{{1, 5, 5, 3}}, {{3, 3, 3, 1}}}, {{{3, 15, 16, 50}}, {{50, 3, 3, 1}}},
             {.stride = {2, 1}, .padding = {1, 1}}),
    conv_row("conv2d_depthwise_5x5", {{{1, 6, 6, 2}}, {{2, 5, 5, 1}}}, {{{2, 70, 60, 36}}, {{36, 5, 5, 1}}},
             {.padding = {2, 2}}),
    conv_row("conv2d_depthwise_uneven", {{{1, 7, 8, 2}}, {{2, 2, 4, 1}}}, {{{2, 20, 21, 18}}, {{18, 2, 4, 1}}},
             {.stride = {3, 2}, .padding = {0, 3}, .dilation = {2, 1}}),
    conv_row("conv2d_many_positions", {{{1, 4, 4, 1}}, {{2, 3, 3, 1}}}, {{{5, 64, 60, 8}}, {{10, 3, 3, 8}}},
             {.padding = {1, 1}}),
    {.name = "attention",
     .inputs = {{{2, 5, 2, 4}}, {{2, 5, 2, 4}}, {{2, 5, 2, 4}}},
     .op = [](const Vars& v) { return attention(v[0], v[1], v[2]); },
     .oracle = [](const Tensors& t) { return attention_oracle(t, true); },
     .large = {{{1, 600, 2, 24}}, {{1, 600, 2, 24}}, {{1, 600, 2, 24}}},
     .errors = {{[] {
                   attention(Tensor::zeros({1, 4, 2, 8}), Tensor::zeros({1, 4, 3, 8}), Tensor::zeros({1, 4, 3, 8}));
                 },
                 "[attention] q (B, Tq, H, D)"},
                {[] {
                   attention(Tensor::zeros({1, 5, 2, 8}), Tensor::zeros({1, 4, 2, 8}), Tensor::zeros({1, 4, 2, 8}));
                 },
                 "[attention] a causal mask needs at least as many keys"},
                {[] {
                   attention(Tensor::zeros({1, 2, 2, 8}), Tensor::zeros({1, 0, 2, 8}), Tensor::zeros({1, 0, 2, 8}),
                             {.causal = false});
                 },
                 "[attention] at least one key expected"},
                {[] {
                   const Tensor x = Tensor::zeros({1, 2, 2, 8});
                   attention_backward(x.to(DType::f64), x, x, x, attention(x, x, x, true, 0.0), true, 0.0);
                 },
                 "[attention_backward] operands must have one dtype"}}},
    {.name = "attention_full",
     .inputs = {{{1, 4, 2, 3}}, {{1, 6, 2, 3}}, {{1, 6, 2, 3}}},
     .op = [](const Vars& v) { return attention(v[0], v[1], v[2], {.causal = false}); },
     .oracle = [](const Tensors& t) { return attention_oracle(t, false); },
     .large = {{{2, 70, 1, 40}}, {{2, 530, 1, 40}}, {{2, 530, 1, 40}}}},
    {.name = "attention_grouped",  // four heads share two key heads; keys of a prefix come before the queries
     .inputs = {{{2, 3, 4, 4}}, {{2, 5, 2, 4}}, {{2, 5, 2, 4}}},
     .op = [](const Vars& v) { return attention(v[0], v[1], v[2]); },
     .oracle = [](const Tensors& t) { return attention_oracle(t, true); },
     .large = {{{2, 90, 4, 16}}, {{2, 100, 2, 16}}, {{2, 100, 2, 16}}}},
    {.name = "self_attention",
     .inputs = {{{2, 5, 3, 2, 4}}},
     .op = [](const Vars& v) { return self_attention(v[0]); },
     .oracle =
         [](const Tensors& t) {
           return attention_oracle({part(t[0], 0), part(t[0], 1), part(t[0], 2)}, true);
         },
     .large = {{{2, 130, 3, 3, 32}}},
     .errors = {{[] {
                   self_attention(Tensor::zeros({1, 4, 2, 2, 8}));
                 },
                 "[self_attention] (B, T, 3, H, D) expected"}}},
});

}  // namespace
}  // namespace elinvar::test
