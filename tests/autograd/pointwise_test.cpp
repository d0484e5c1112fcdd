// Cases that the rows in ops/pointwise.cpp do not cover: integers, special values, writing in place, fused forms.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/pointwise.h"
#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/ops/compare.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/pointwise.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
Tensor row(std::vector<T> values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

template <class F>
void on_every_isa(F f) {
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    set_isa(isa);
    f();
  }
  set_isa(available_isas().back());
}

template <class T>
void integers() {
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  const Tensor a = row<T>({7, -7, 5, low, high, low}), b = row<T>({2, 2, 0, -1, 1, high});
  EXPECT_TRUE(same_bits(add(a, b), row<T>({9, -5, 5, high, low, -1})));
  EXPECT_TRUE(same_bits(sub(a, b), row<T>({5, -9, 5, low + 1, high - 1, 1})));
  EXPECT_TRUE(same_bits(mul(a, b), row<T>({14, -14, 0, low, high, low})));
  EXPECT_TRUE(same_bits(div(a, b), row<T>({3, -3, 0, low, high, -1})));
  EXPECT_TRUE(same_bits(maximum(a, b), row<T>({7, 2, 5, -1, high, high})));
  EXPECT_TRUE(same_bits(minimum(a, b), row<T>({2, -7, 0, low, 1, low})));
}

TEST(Pointwise, IntegersWrapAndTruncate) {
  on_every_isa([] {
    integers<int32_t>();
    integers<int64_t>();
  });
}

TEST(Pointwise, SpecialValues) {
  on_every_isa([] {
    const Tensor x = row<float>({kNan, -kInfinity, kInfinity, -0.0f, 1e-41f, -1e-41f});
    EXPECT_TRUE(same_bits(relu(x), row<float>({kNan, 0.0f, kInfinity, 0.0f, 1e-41f, 0.0f})));
    EXPECT_TRUE(same_bits(abs(x), row<float>({kNan, kInfinity, kInfinity, 0.0f, 1e-41f, 1e-41f})));
    EXPECT_TRUE(same_bits(sigmoid(x), row<float>({kNan, 0.0f, 1.0f, 0.5f, 0.5f, 0.5f})));
    EXPECT_TRUE(same_bits(add(x, 0.0), row<float>({kNan, -kInfinity, kInfinity, 0.0f, 1e-41f, -1e-41f})));
    const Tensor a = row<float>({kNan, 1.0f, -0.0f, 0.0f}), b = row<float>({1.0f, kNan, 0.0f, -0.0f});
    EXPECT_TRUE(same_bits(maximum(a, b), row<float>({1.0f, kNan, 0.0f, -0.0f})));
    EXPECT_TRUE(same_bits(minimum(a, b), row<float>({1.0f, kNan, 0.0f, -0.0f})));
  });
}

TEST(Pointwise, ComparisonsWithNanAndBetweenAllTypes) {
  const Tensor a = row<float>({kNan, 1.0f, -0.0f, kInfinity}), b = row<float>({kNan, kNan, 0.0f, 2.0f});
  EXPECT_TRUE(same_bits(equal(a, b), row<uint8_t>({0, 0, 1, 0})));
  EXPECT_TRUE(same_bits(not_equal(a, b), row<uint8_t>({1, 1, 0, 1})));
  EXPECT_TRUE(same_bits(less_equal(a, b), row<uint8_t>({0, 0, 1, 0})));
  EXPECT_TRUE(same_bits(greater(a, b), row<uint8_t>({0, 0, 0, 1})));
  const Tensor p = row<float>({0, 3, 5}), q = row<float>({1, 3, 4});
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8})
    EXPECT_TRUE(same_bits(less(p.to(t), q.to(t)), row<uint8_t>({1, 0, 0}))) << name_of(t);
  const Tensor mask = row<uint8_t>({1, 0, 255});
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8})
    EXPECT_TRUE(same_bits(where(mask, p.to(t), q.to(t)), row<float>({0, 3, 5}).to(t))) << name_of(t);
}

// Compares every combination of layouts of two operands with the same operands made contiguous.
TEST(Pointwise, AnyStridesGiveTheSameBits) {
  const Tensor base = normal({6, 700, 4}, "strided");
  const std::vector<Tensor> layouts = {
      base.select(2, 0),          // inner stride 4
      base.select(2, 1).clone(),  // contiguous
      base.select(2, 2).transpose(0, 1).clone().transpose(0, 1),
      base.slice(1, 0, 1).select(2, 3).expand({6, 700}),
      base.slice(0, 0, 1).select(2, 3).expand({6, 700}),
      base.slice(0, 0, 1).slice(1, 0, 1).select(2, 3).expand({6, 700}),
  };
  on_every_isa([&] {
    for (size_t i = 0; i < layouts.size(); ++i)
      for (size_t j = 0; j < layouts.size(); ++j)
        EXPECT_TRUE(same_bits(mul(layouts[i], layouts[j]), mul(layouts[i].clone(), layouts[j].clone())))
            << i << ", " << j;
  });
}

TEST(Pointwise, InPlace) {
  on_every_isa([] {
    const Tensor x = normal({5, 301}, "in place"), y = normal({301}, "in place/y");
    Tensor z = x.clone();
    add_into(z, y);
    EXPECT_TRUE(same_bits(z, add(x, y)));
    scale_into(z, 0.7);
    EXPECT_TRUE(same_bits(z, mul(add(x, y), Tensor::scalar(0.7))));
    add_into(z, z);
    EXPECT_TRUE(same_bits(z, mul(mul(add(x, y), 0.7), 2.0)));

    Tensor w = x.clone(), view = w.transpose(0, 1).slice(0, 3, 301, 2);
    add_into(view, view.clone());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t column = i % 301;
      const float before = x.data<float>()[i];
      EXPECT_EQ(w.data<float>()[i], column >= 3 && column % 2 == 1 ? before + before : before);
    }
  });
  Tensor expanded = Tensor::zeros({1}).expand({3});
  EXPECT_THROW(add_into(expanded, Tensor::zeros({3})), UsageError);
  Tensor small = Tensor::zeros({3});
  EXPECT_THROW(add_into(small, Tensor::zeros({2, 3})), UsageError);
}

TEST(Pointwise, FusedFormsHaveTheBitsOfTheirParts) {
  on_every_isa([] {
    const Tensors t = make_inputs({{{9, 77}}, {{77}}}, "fused", Values::adversarial);
    EXPECT_TRUE(same_bits(add_relu(t[0], t[1]), relu(add(t[0], t[1]))));
    const auto gradients = [&](bool fused) {
      const Var a(t[0], true), b(t[1], true);
      const Var y = fused ? add_relu(a, b) : relu(add(a, b));
      const Tensor w = normal({9, 77}, "fused/w");
      backward(record(Tensor::scalar(0.0), {y}, [w](const Tensor&) { return std::vector<Tensor>{w}; }));
      return std::pair{a.grad(), b.grad()};
    };
    const auto [fused_a, fused_b] = gradients(true);
    const auto [parts_a, parts_b] = gradients(false);
    EXPECT_TRUE(same_bits(fused_a, parts_a));
    EXPECT_TRUE(same_bits(fused_b, parts_b));
  });
}

TEST(Pointwise, EmptyAndScalarTensors) {
  EXPECT_EQ(add(Tensor::zeros({0, 3}), Tensor::zeros({3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(exp(Tensor::zeros({0})).numel(), 0);
  EXPECT_EQ(less(Tensor::zeros({0}), Tensor::zeros({1})).numel(), 0);
  EXPECT_EQ(dropout(Tensor::zeros({0}), 0.5, Rng{}).numel(), 0);
  EXPECT_EQ(add(Tensor::scalar(1.5), Tensor::scalar(2.0)).item(), 3.5);
}

TEST(Dropout, KeepsAboutItsShareAndEverythingAtZero) {
  const Tensor x = Tensor::full({100003}, 1.0);
  on_every_isa([&] {
    EXPECT_TRUE(same_bits(dropout(x, 0.0, Rng{5}), x));
    int64_t kept = 0;
    const Tensor y = dropout(x, 0.25, Rng{5});
    for (float v : y.span<float>()) kept += v != 0.0f;
    EXPECT_NEAR(static_cast<double>(kept) / 100003.0, 0.75, 0.01);  // 7 standard errors
  });
  EXPECT_FALSE(same_bits(dropout(x, 0.25, Rng{5}), dropout(x, 0.25, Rng{.seed = 5, .op = 1})));
}

TEST(Cast, RoundsThroughBf16) {
  const Var x(row<float>({1.0f + 0x1p-8f, 1.0f + 0x1.8p-7f, kNan}), true);
  EXPECT_TRUE(same_bits(cast(cast(x, DType::bf16), DType::f32).value(), row<float>({1.0f, 1.0f + 0x1p-6f, kNan})));
}

}  // namespace
}  // namespace elinvar::test
