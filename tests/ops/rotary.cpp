#include <cmath>
#include <numbers>

#include "autograd/linear.h"
#include "tensor/ops/rotary.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// Uses wavelengths, as LLaMA 3.1's model code does.
double scaled(double f, const RotaryFrequencies& of) {
  const double wavelength = 2 * std::numbers::pi / f, context = static_cast<double>(of.context);
  if (wavelength < context / of.high) return f;
  if (wavelength > context / of.low) return f / of.factor;
  const double smooth = (context / wavelength - of.low) / (of.high - of.low);
  return (1 - smooth) * f / of.factor + smooth * f;
}

Tensor rotary_oracle(const Tensor& x, const RotaryFrequencies& of, int64_t first) {
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  const int64_t time = x.dim(1), heads = x.dim(2), d = x.dim(3);
  for (int64_t r = 0; r < x.numel() / d; ++r) {
    const double* a = x.data<double>() + r * d;
    double* b = y.data<double>() + r * d;
    const auto t = static_cast<double>(first + r / heads % time);
    for (int64_t i = 0; i < d / 2; ++i) {
      const double angle = t * scaled(std::pow(of.base, -2.0 * static_cast<double>(i) / static_cast<double>(d)), of);
      b[i] = a[i] * std::cos(angle) - a[i + d / 2] * std::sin(angle);
      b[i + d / 2] = a[i + d / 2] * std::cos(angle) + a[i] * std::sin(angle);
    }
  }
  return y;
}

// With 16 pairs, some keep their speed, some are in between, and some turn eight times slower.
constexpr RotaryFrequencies kLlama31{500.0, 8.0, 1.0, 4.0, 64};

const OpRows rotary_rows({
    {.name = "rotary",
     .inputs = {{{2, 5, 3, 12}}},
     .op = [](const Vars& v) { return rotary(v[0]); },
     .oracle = [](const Tensors& t) { return rotary_oracle(t[0], {}, 0); },
     .large = {{{3, 129, 5, 66}}},
     .errors = {{[] {
                   rotary(Var(Tensor::zeros({2, 5, 12})));
                 },
                 "[rotary] (B, T, H, D) with an even D expected, shape is (2, 5, 12)"},
                {[] {
                   rotary(Var(Tensor::zeros({2, 5, 3, 7})));
                 },
                 "[rotary] (B, T, H, D) with an even D"},
                {[] {
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), {0.5});
                 },
                 "[rotary] the base must be a number of at least 1"},
                {[] {
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), {.factor = 0.5});
                 },
                 "[rotary] the factor must be a number of at least 1, got 0.5"},
                {[] {
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), {.low = 4.0, .high = 4.0});
                 },
                 "[rotary] expected turns 0 < low < high in the first context, got 4 and 4"},
                {[] {
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), {.context = 0});
                 },
                 "[rotary] the first context must have at least 1 position, got 0"},
                {[] {
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), {10.0}, -1);
                 },
                 "[rotary] 1 positions from -1 on are not inside"},
                {[] {
                   const RotaryAngles angles = rotary_angles(4, 6, {}, 0, DType::f32);
                   rotary(Tensor::zeros({2, 5, 3, 12}), angles, false);
                 },
                 "[rotary] the cosines must be float32 of shape (5, 6), got float32 of shape (4, 6)"},
                {[] {
                   rotary(Tensor::zeros({5, 12}), rotary_angles(5, 6, {}, 0, DType::f32), false);
                 },
                 "[rotary] (B, T, H, D) with an even D"}}},
    {.name = "rotary/far",
     .inputs = {{{1, 4, 2, 128}}},
     .op = [](const Vars& v) { return rotary(v[0], {500000.0}, 100000); },
     .oracle = [](const Tensors& t) { return rotary_oracle(t[0], {500000.0}, 100000); }},
    {.name = "rotary/llama31",
     .inputs = {{{2, 5, 2, 32}}},
     .op = [](const Vars& v) { return rotary(v[0], kLlama31, 60); },
     .oracle = [](const Tensors& t) { return rotary_oracle(t[0], kLlama31, 60); }},
});

}  // namespace
}  // namespace elinvar::test
