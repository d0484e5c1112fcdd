#include <cmath>

#include "autograd/linear.h"
#include "tensor/ops/rotary.h"
#include "tests/op_row.h"

namespace elinvar::test {
namespace {

Tensor rotary_oracle(const Tensor& x, double base, int64_t first) {
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  const int64_t time = x.dim(1), heads = x.dim(2), d = x.dim(3);
  for (int64_t r = 0; r < x.numel() / d; ++r) {
    const double* a = x.data<double>() + r * d;
    double* b = y.data<double>() + r * d;
    const auto t = static_cast<double>(first + r / heads % time);
    for (int64_t i = 0; i < d / 2; ++i) {
      const double angle = t * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      b[i] = a[i] * std::cos(angle) - a[i + d / 2] * std::sin(angle);
      b[i + d / 2] = a[i + d / 2] * std::cos(angle) + a[i] * std::sin(angle);
    }
  }
  return y;
}

const OpRows rows({
    {.name = "rotary",
     .inputs = {{{2, 5, 3, 12}}},
     .op = [](const Vars& v) { return rotary(v[0]); },
     .oracle = [](const Tensors& t) { return rotary_oracle(t[0], 10000.0, 0); },
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
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), 0.5);
                 },
                 "[rotary] the base must be a number of at least 1"},
                {[] {
                   rotary(Var(Tensor::zeros({1, 1, 1, 2})), 10.0, -1);
                 },
                 "[rotary] 1 positions from -1 on are not inside"},
                {[] {
                   const RotaryAngles angles = rotary_angles(4, 6, 10000.0, 0, DType::f32);
                   rotary(Tensor::zeros({2, 5, 3, 12}), angles, false);
                 },
                 "[rotary] the cosines must be float32 of shape (5, 6), got float32 of shape (4, 6)"},
                {[] {
                   rotary(Tensor::zeros({5, 12}), rotary_angles(5, 6, 10000.0, 0, DType::f32), false);
                 },
                 "[rotary] (B, T, H, D) with an even D"}}},
    {.name = "rotary/far",
     .inputs = {{{1, 4, 2, 128}}},
     .op = [](const Vars& v) { return rotary(v[0], 500000.0, 100000); },
     .oracle = [](const Tensors& t) { return rotary_oracle(t[0], 500000.0, 100000); }},
});

}  // namespace
}  // namespace elinvar::test
