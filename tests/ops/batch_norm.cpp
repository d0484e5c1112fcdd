#include <cmath>

#include "autograd/norm.h"
#include "tensor/ops/batch_norm.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// t: x, gamma, beta and then, as the flags say, a residual, or a mean and a variance.
Tensor oracle(const Tensors& t, bool relu, bool residual, bool given) {
  const Tensor& x = t[0];
  const int64_t channels = x.dim(-1), rows = x.numel() / channels;
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0.0, var = 0.0;
    for (int64_t r = 0; r < rows; ++r) mean += x.data<double>()[r * channels + c] / static_cast<double>(rows);
    for (int64_t r = 0; r < rows; ++r)
      var += std::pow(x.data<double>()[r * channels + c] - mean, 2) / static_cast<double>(rows);
    if (given) {
      mean = t[3].data<double>()[c];
      var = t[4].data<double>()[c];
    }
    for (int64_t i = c; i < x.numel(); i += channels) {
      double v = (x.data<double>()[i] - mean) / std::sqrt(var + 1e-5) * t[1].data<double>()[c] + t[2].data<double>()[c];
      if (residual) v += t[3].data<double>()[i];
      y.data<double>()[i] = relu ? std::max(v, 0.0) : v;
    }
  }
  return y;
}

Inputs with_factors(const Shape& x) { return {{x}, {{x.back()}}, {{x.back()}}}; }
Inputs with_residual(const Shape& x) { return {{x}, {{x.back()}}, {{x.back()}}, {x}}; }
Inputs with_statistics(const Shape& x) {
  const Input mean{.shape = {x.back()}, .differentiable = false};
  const Input var{.shape = {x.back()}, .kind = Input::Kind::positive, .differentiable = false};
  return {{x}, {{x.back()}}, {{x.back()}}, mean, var};
}

Var unit(int64_t n) { return Tensor::full({n}, 1.0); }

// 1380 rows: several blocks, the last of which and whose last leaf are not full; 133 channels: every strip width.
const Shape kLarge{3, 20, 23, 133};

const OpRows batch_norm_rows({
    {.name = "batch_norm",
     .inputs = with_factors({2, 5, 7, 3}),
     .op = [](const Vars& v) { return batch_norm(v[0], v[1], v[2]).y; },
     .oracle = [](const Tensors& t) { return oracle(t, false, false, false); },
     .large = with_factors(kLarge),
     .errors = {{[] { batch_norm(Tensor::zeros({4}), unit(4), unit(4)); },
                 "[batch_norm] an input (.., C) with elements"},
                {[] {
                   batch_norm(Tensor::zeros({0, 4}), unit(4), unit(4));
                 },
                 "[batch_norm] an input (.., C) with elements"},
                {[] {
                   batch_norm(Tensor::zeros({2, 4}, DType::i32), unit(4), unit(4));
                 },
                 "[batch_norm] float32 or float64"},
                {[] {
                   batch_norm(Tensor::zeros({2, 4}), unit(3), unit(4));
                 },
                 "[batch_norm] gamma must be float32 of shape (4,)"},
                {[] {
                   batch_norm(Tensor::zeros({2, 4}), unit(4), unit(5));
                 },
                 "[batch_norm] beta must be float32 of shape (4,)"},
                {[] {
                   batch_norm(Tensor::zeros({2, 4}), unit(4), unit(4), {.residual = Tensor::zeros({1, 4})});
                 },
                 "[batch_norm] shapes (2, 4) and (1, 4) must be equal"}}},
    {.name = "batch_norm_relu",
     .inputs = with_factors({67, 5}),
     .op = [](const Vars& v) { return batch_norm(v[0], v[1], v[2], {.relu = true}).y; },
     .oracle = [](const Tensors& t) { return oracle(t, true, false, false); },
     .large = with_factors(kLarge)},
    {.name = "batch_norm_residual",
     .inputs = with_residual({3, 4, 4, 6}),
     .op = [](const Vars& v) { return batch_norm(v[0], v[1], v[2], {.residual = v[3]}).y; },
     .oracle = [](const Tensors& t) { return oracle(t, false, true, false); },
     .large = with_residual({900, 32})},
    {.name = "batch_norm_residual_relu",
     .inputs = with_residual({3, 4, 4, 6}),
     .op = [](const Vars& v) { return batch_norm(v[0], v[1], v[2], {.relu = true, .residual = v[3]}).y; },
     .oracle = [](const Tensors& t) { return oracle(t, true, true, false); },
     .large = with_residual(kLarge)},
    {.name = "batch_norm_eval",
     .inputs = with_statistics({3, 4, 4, 6}),
     .op = [](const Vars& v) { return batch_norm_eval(v[0], v[1], v[2], v[3].value(), v[4].value()); },
     .oracle = [](const Tensors& t) { return oracle(t, false, false, true); },
     .large = with_statistics(kLarge),
     .errors = {{[] {
                   batch_norm_eval(Tensor::zeros({2, 4}), unit(4), unit(4), Tensor::zeros({4}), Tensor::zeros({1}));
                 },
                 "[batch_norm] the variance must be float32 of shape (4,)"},
                {[] {
                   batch_norm_eval(Tensor::zeros({2, 4}), unit(5), unit(5), Tensor::zeros({5}), Tensor::zeros({5}));
                 },
                 "[batch_norm] the factors must be float32 of shape (4,)"},
                {[] {
                   const Tensor four = Tensor::zeros({4});
                   batch_norm_apply(Tensor::zeros({2, 4}), {four, four, four, Tensor::zeros({3})}, {}, false);
                 },
                 "[batch_norm] the factors must be float32 of shape (4,), got float32 of shape (3,)"}}},
    {.name = "batch_norm_eval_relu",
     .inputs = with_statistics({3, 4, 4, 6}),
     .op = [](const Vars& v) { return batch_norm_eval(v[0], v[1], v[2], v[3].value(), v[4].value(), {.relu = true}); },
     .oracle = [](const Tensors& t) { return oracle(t, true, false, true); },
     .large = with_statistics(kLarge)},
});

}  // namespace
}  // namespace elinvar::test
