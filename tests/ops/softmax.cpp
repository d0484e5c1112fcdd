#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "tensor/ops/softmax.h"
#include "tests/ops/op_row.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

Tensor softmax_oracle(const Tensor& x, bool log_form) {
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  const int64_t n = x.dim(-1);
  for (int64_t r = 0; r < x.numel() / n; ++r) {
    const double* a = x.data<double>() + r * n;
    double* b = y.data<double>() + r * n;
    const double m = *std::max_element(a, a + n);
    double l = 0.0;
    for (int64_t i = 0; i < n; ++i) l += std::exp(a[i] - m);
    for (int64_t i = 0; i < n; ++i) b[i] = log_form ? a[i] - m - std::log(l) : std::exp(a[i] - m) / l;
  }
  return y;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Adds elements whose exponential is zero; the result omits them.
Var with_absent(const Var& x) {
  std::vector<int64_t> none(static_cast<size_t>(x.ndim())), some = none;
  some.back() = 41;
  return pad(x, none, some, -kInfinity);
}
Var without_last(const Var& y) { return slice(y, -1, 0, y.shape().back() - 41); }

TEST(Softmax, WhatIsNoNumber) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from<float>({1, 2, nan, nan, 1, 2, 1, inf, 2, -inf, -inf, -inf, 1, -inf, 1}, {5, 3});
  const Tensor y = softmax(x), log_y = log_softmax(x);
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_TRUE(std::isnan(y.data<float>()[i]) && std::isnan(log_y.data<float>()[i])) << i;
  EXPECT_TRUE(same_bits(y.select(0, 4), Tensor::from<float>({0.5, 0, 0.5}, {3})));
  EXPECT_EQ(log_y.data<float>()[13], -inf);
}

const OpRows softmax_rows({
    {.name = "softmax",
     .inputs = {{{3, 5, 17}}},
     .op = [](const Vars& v) { return softmax(v[0]); },
     .oracle = [](const Tensors& t) { return softmax_oracle(t[0], false); },
     .large = {{{37, 5003}}},
     .zero_filled = [](const Vars& v) { return without_last(softmax(with_absent(v[0]))); },
     .errors = {{[] {
                   softmax(Var(Tensor::zeros({2, 0})));
                 },
                 "[softmax] a last dimension with elements expected"},
                {[] {
                   softmax(Var(Tensor::zeros({2, 2}, DType::i32)));
                 },
                 "[softmax] float32 or float64 expected"},
                {[] {
                   softmax_backward(Tensor::zeros({2, 2}, DType::f64), Tensor::zeros({2, 2}));
                 },
                 "[softmax_backward] operands must have one dtype"}}},
    {.name = "log_softmax",
     .inputs = {{{4, 33}}},
     .op = [](const Vars& v) { return log_softmax(v[0]); },
     .oracle = [](const Tensors& t) { return softmax_oracle(t[0], true); },
     .large = {{{301, 130}}},
     .zero_filled = [](const Vars& v) { return without_last(log_softmax(with_absent(v[0]))); },
     .errors = {{[] { log_softmax(Var(Tensor::zeros({}))); }, "[log_softmax] a last dimension"}}},
});

}  // namespace
}  // namespace elinvar::test
