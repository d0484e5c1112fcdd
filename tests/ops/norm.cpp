#include <cmath>

#include "tests/ops/op_inputs.h"
#include "autograd/norm.h"
#include "autograd/pointwise.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/pointwise.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// Normalises rows of n elements that are `stride` apart in groups of `run`: element j of a row is at
// (j / run) * stride + j % run.
void normalise(double* x, int64_t n, int64_t run, int64_t stride, double eps, bool centred) {
  const auto at = [&](int64_t j) -> double& { return x[j / run * stride + j % run]; };
  double m = 0.0, v = 0.0;
  for (int64_t j = 0; centred && j < n; ++j) m += at(j) / static_cast<double>(n);
  for (int64_t j = 0; j < n; ++j) v += (at(j) - m) * (at(j) - m) / static_cast<double>(n);
  for (int64_t j = 0; j < n; ++j) at(j) = (at(j) - m) / std::sqrt(v + eps);
}

Tensor affine(Tensor y, const Tensor* gamma, const Tensor* beta) {
  const int64_t c = y.dim(-1);
  for (int64_t i = 0; i < y.numel(); ++i) {
    double& v = y.data<double>()[i];
    if (gamma) v *= gamma->data<double>()[i % c];
    if (beta) v += beta->data<double>()[i % c];
  }
  return y;
}

Tensor row_oracle(const Tensor& x, const Tensor* gamma, const Tensor* beta, double eps, bool centred) {
  Tensor y = x.clone();
  const int64_t n = x.dim(-1);
  for (int64_t r = 0; r < x.numel() / n; ++r) normalise(y.data<double>() + r * n, n, n, n, eps, centred);
  return affine(y, gamma, beta);
}

Tensor group_oracle(const Tensors& t, int64_t groups, double eps) {
  Tensor y = t[0].clone();
  const int64_t c = y.dim(-1), width = c / groups, positions = y.numel() / (y.dim(0) * c);
  for (int64_t n = 0; n < y.dim(0); ++n)
    for (int64_t g = 0; g < groups; ++g)
      normalise(y.data<double>() + n * positions * c + g * width, positions * width, width, c, eps, true);
  return affine(y, &t[1], &t[2]);
}

// Two rows of three, with saved numbers of these shapes.
void backward_of(RowNorm kind, const Shape& mean, const Shape& r, const Shape& gamma) {
  row_norm_backward(kind, Tensor::zeros({2, 3}), Tensor::zeros({2, 3}), Tensor::zeros(gamma),
                    {Tensor(), Tensor::zeros(mean), Tensor::zeros(r)}, true, true);
}

const OpRows norm_rows({
    {.name = "layer_norm",
     .inputs = {{{3, 5, 37}}, {{37}}, {{37}}},
     .op = [](const Vars& v) { return layer_norm(v[0], v[1], v[2]); },
     .oracle = [](const Tensors& t) { return row_oracle(t[0], &t[1], &t[2], 1e-5, true); },
     .large = {{{5, 61, 771}}, {{771}}, {{771}}},
     .errors = {{[] {
                   layer_norm(zeros({2, 3}), zeros({2}), {});
                 },
                 "[layer_norm] gamma must be float32 of shape (3,), got float32 of shape (2,)"},
                {[] {
                   layer_norm(zeros({2, 3}), {}, zeros({3, 1}));
                 },
                 "[layer_norm] beta must be float32 of shape (3,)"},
                {[] {
                   layer_norm(zeros({2, 0}), {}, {});
                 },
                 "[layer_norm] a last dimension with elements"},
                {[] {
                   layer_norm(Var(Tensor::zeros({2, 3}, DType::i32)), {}, {});
                 },
                 "[layer_norm] float32 or float64"},
                {[] { backward_of(RowNorm::layer, {1}, {2}, {3}); },
                 "[row_norm_backward] the mean must be float32 of shape (2,), got float32 of shape (1,)"},
                {[] { backward_of(RowNorm::rms, {}, {1}, {3}); },
                 "[row_norm_backward] r must be float32 of shape (2,)"},
                {[] { backward_of(RowNorm::rms, {}, {2}, {2}); },
                 "[row_norm_backward] gamma must be float32 of shape (3,)"}}},
    {.name = "layer_norm/plain",
     .inputs = {{{70, 9}}},
     .op = [](const Vars& v) { return layer_norm(v[0], {}, {}, 1e-2); },
     .oracle = [](const Tensors& t) { return row_oracle(t[0], nullptr, nullptr, 1e-2, true); },
     .large = {{{3, 9001}}}},
    {.name = "layer_norm/gamma",
     .inputs = {{{4, 16}}, {{16}}},
     .op = [](const Vars& v) { return layer_norm(v[0], v[1], {}); },
     .oracle = [](const Tensors& t) { return row_oracle(t[0], &t[1], nullptr, 1e-5, true); }},
    // The norm's gradient is added to the gradient that has already reached its input.
    {.name = "layer_norm/residual",
     .inputs = {{{4, 70}}, {{70}}},
     .op =
         [](const Vars& v) {
           const Var x = v[0] * 2.0;
           return x + layer_norm(x, v[1], {}) + rms_norm(x, v[1]);
         },
     .oracle =
         [](const Tensors& t) {
           Tensor y = mul(t[0], 2.0);
           const Tensor layer = row_oracle(y, &t[1], nullptr, 1e-5, true),
                        rms = row_oracle(y, &t[1], nullptr, 1e-5, false);
           return add(add(y, layer), rms);
         },
     .large = {{{67, 300}}, {{300}}}},
    {.name = "add_layer_norm",
     .inputs = {{{3, 5, 37}}, {{3, 5, 37}}, {{37}}, {{37}}},
     .op =
         [](const Vars& v) {
           const SumAndNorm made = add_layer_norm(v[0], v[1], v[2], v[3]);
           return made.sum * 0.5 + made.norm;
         },
     .oracle =
         [](const Tensors& t) {
           const Tensor sum = add(t[0], t[1]);
           return add(mul(sum, 0.5), row_oracle(sum, &t[2], &t[3], 1e-5, true));
         },
     .large = {{{5, 61, 771}}, {{5, 61, 771}}, {{771}}, {{771}}},
     .errors = {{[] {
                   add_layer_norm(zeros({2, 3}), zeros({3}), {}, {});
                 },
                 "[add_norm] shapes (2, 3) and (3,) must be equal"},
                {[] {
                   add_layer_norm(zeros({2, 3}), Var(Tensor::zeros({2, 3}, DType::f64)), {}, {});
                 },
                 "[add_norm] an addend of type float32 expected, or of bfloat16 for a float32 input, not float64"},
                {[] {
                   add_layer_norm(zeros({2, 3}), zeros({2, 3}), zeros({2}), {});
                 },
                 "[add_norm] gamma must be float32 of shape (3,)"}}},
    // The sum's gradient goes to both addends, one of which has another gradient too; an RMS norm of long rows.
    {.name = "add_rms_norm",
     .inputs = {{{4, 70}}, {{4, 70}}, {{70}}},
     .op =
         [](const Vars& v) {
           const SumAndNorm made = add_rms_norm(v[0], v[1], v[2]);
           return made.sum * v[1] + made.norm;
         },
     .oracle =
         [](const Tensors& t) {
           const Tensor sum = add(t[0], t[1]);
           return add(mul(sum, t[1]), row_oracle(sum, &t[2], nullptr, 1e-5, false));
         },
     .large = {{{3, 9001}}, {{3, 9001}}, {{9001}}}},
    {.name = "rms_norm",
     .inputs = {{{3, 5, 37}}, {{37}}},
     .op = [](const Vars& v) { return rms_norm(v[0], v[1]); },
     .oracle = [](const Tensors& t) { return row_oracle(t[0], &t[1], nullptr, 1e-5, false); },
     .large = {{{5, 61, 771}}, {{771}}},
     .errors = {{[] {
                   rms_norm(zeros({2, 3}), zeros({4}));
                 },
                 "[rms_norm] gamma must be float32 of shape (3,)"}}},
    {.name = "group_norm",
     .inputs = {{{2, 3, 2, 6}}, {{6}}, {{6}}},
     .op = [](const Vars& v) { return group_norm(v[0], v[1], v[2], 3); },
     .oracle = [](const Tensors& t) { return group_oracle(t, 3, 1e-5); },
     .large = {{{3, 17, 13, 48}}, {{48}}, {{48}}},
     .errors = {{[] {
                   group_norm(zeros({2, 4, 6}), {}, {}, 4);
                 },
                 "[group_norm] 6 channels do not form 4 equal groups"},
                {[] { group_norm(zeros({6}), {}, {}, 2); }, "[group_norm] (N, .., C) with elements expected"},
                {[] {
                   group_norm(zeros({2, 6}), zeros({5}), {}, 2);
                 },
                 "[group_norm] gamma and beta must have shape (6,)"}}},
});

}  // namespace
}  // namespace elinvar::test
