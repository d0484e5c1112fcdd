// Products in a PrecisionScope of Precision::exact: which of them are exact, and in which scope their gradients are.
// Their accuracy and bits are in tests/ops/exact_product.cpp.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "autograd/conv.h"
#include "autograd/linear.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "autograd/shards.h"
#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/ops/pointwise.h"
#include "tensor/stream.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/amx_model.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

using Op = std::function<Var(const Vars&)>;

struct Product {
  const char* name;
  std::vector<Shape> inputs;
  Op op;
};

Var bias_of(const Vars& v) { return v.size() > 2 ? v[2] : Var{}; }

std::vector<Product> products() {
  const auto linear_of = [](const Vars& v) { return linear(v[0], v[1], bias_of(v)); };
  const auto matmul_of = [](const Vars& v) { return matmul(v[0], v[1]); };
  const auto conv_of = [](const Vars& v) {
    return conv2d(v[0], v[1], bias_of(v), {.padding = {1, 1}, .groups = v[0].dim(3) / v[1].dim(3)});
  };
  return {{"linear", {{9, 35}, {13, 35}}, linear_of},
          {"linear with bias", {{2, 3, 7}, {11, 7}, {11}}, linear_of},
          {"matmul", {{9, 35}, {35, 13}}, matmul_of},
          {"matmul, batched", {{2, 3, 5}, {2, 5, 4}}, matmul_of},
          {"matmul, broadcast", {{3, 1, 3, 5}, {2, 5, 4}}, matmul_of},
          {"conv2d", {{3, 7, 6, 5}, {9, 3, 3, 5}, {9}}, conv_of},
          {"conv2d, grouped", {{3, 5, 6, 8}, {4, 3, 3, 4}}, conv_of}};
}

struct Outcome {
  Tensor value;
  Tensors grads;  // of each input
};

// Computes the value in one scope and the gradients in another. Bit i of `constant` makes input i a constant.
Outcome evaluate(const Product& product, Precision forward, Precision backward_scope, unsigned constant = 0) {
  Vars inputs;
  for (size_t i = 0; i < product.inputs.size(); ++i)
    inputs.emplace_back(normal(product.inputs[i], fmt::format("{}/{}", product.name, i)), (constant >> i & 1) == 0);
  Var y, weighted;
  {
    const PrecisionScope scope(forward);
    y = product.op(inputs);
  }
  const PrecisionScope scope(backward_scope);
  backward(record(Tensor::scalar(0), {y},
                  [dy = normal(y.shape(), product.name)](const Tensor&) { return std::vector<Tensor>{dy}; }));
  Outcome outcome{y.value(), {}};
  for (const Var& v : inputs) outcome.grads.push_back(v.grad());
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(same_bits(a.value, b.value)) << "in the value";
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i) EXPECT_TRUE(same_bits(a.grads[i], b.grads[i])) << "in gradient " << i;
}

TEST(ExactProducts, GradientsAreThoseOfTheForwardPass) {
  for (const Product& product : products()) {
    SCOPED_TRACE(product.name);
    const Outcome exact = evaluate(product, Precision::exact, Precision::exact),
                  portable = evaluate(product, Precision::portable, Precision::portable);
    expect_same(evaluate(product, Precision::exact, Precision::portable), exact);
    expect_same(evaluate(product, Precision::portable, Precision::exact), portable);
    EXPECT_FALSE(same_bits(exact.value, portable.value));
    for (size_t i = 0; i < 2; ++i) EXPECT_FALSE(same_bits(exact.grads[i], portable.grads[i])) << "in gradient " << i;
    // The gradient of a bias is a sum, not a product.
    if (exact.grads.size() > 2) {
      EXPECT_TRUE(same_bits(exact.grads[2], portable.grads[2]));
    }
  }
}

TEST(ExactProducts, AreComputedAlikeByEachKernel) {
  for (const Product& product : products()) {
    const Outcome expected = evaluate(product, Precision::exact, Precision::portable);
    for (const Isa isa : available_isas())
      for (const PairUnits units : kAllPairUnits)
        for (const int threads : {1, 2, 3, 8}) {
          SCOPED_TRACE(fmt::format("{}: {}, {} threads, {}", product.name, name_of(isa), threads, name_of(units)));
          set_isa(isa);
          use_units(units);
          CpuStream stream(threads);
          const StreamScope scope(stream);
          expect_same(evaluate(product, Precision::exact, Precision::portable), expected);
        }
    set_isa(available_isas().back());
    use_best_units();
  }
}

TEST(ExactProducts, ConstantsHaveNoGradientAndChangeNone) {
  for (const Product& product : products()) {
    const Outcome whole = evaluate(product, Precision::exact, Precision::exact);
    const auto inputs = static_cast<unsigned>(product.inputs.size());
    for (unsigned constant = 1; constant + 1 < 1u << inputs; ++constant) {
      SCOPED_TRACE(fmt::format("{}, constants {:b}", product.name, constant));
      Outcome expected = whole;
      for (unsigned i = 0; i < inputs; ++i)
        if (constant >> i & 1) expected.grads[i] = Tensor{};
      expect_same(evaluate(product, Precision::exact, Precision::exact, constant), expected);
    }
  }
}

TEST(ExactProducts, ConvolutionsWhosePairsWouldCrossGroupsArePortable) {
  const auto conv = [](const char* name, const Shape& x, const Shape& w, int64_t groups) {
    return Product{name, {x, w, {w[0]}}, [groups](const Vars& v) {
                     return conv2d(v[0], v[1], v[2], {.padding = {1, 1}, .groups = groups});
                   }};
  };
  for (const Product& product :
       {conv("odd channels", {2, 5, 4, 6}, {4, 3, 3, 3}, 2), conv("odd filters", {2, 5, 4, 8}, {6, 3, 3, 4}, 2),
        conv("depthwise", {2, 5, 4, 6}, {6, 3, 3, 1}, 6),
        conv("depthwise, two filters a channel", {2, 5, 4, 6}, {12, 3, 3, 1}, 6)}) {
    SCOPED_TRACE(product.name);
    expect_same(evaluate(product, Precision::exact, Precision::exact),
                evaluate(product, Precision::portable, Precision::portable));
  }
  // One group may be odd, and a single channel is a group.
  for (const Product& product : {conv("one group", {2, 5, 4, 5}, {3, 3, 3, 5}, 1),
                                 conv("one channel, many filters", {2, 5, 4, 1}, {6, 3, 3, 1}, 1)}) {
    SCOPED_TRACE(product.name);
    EXPECT_FALSE(same_bits(evaluate(product, Precision::exact, Precision::exact).value,
                           evaluate(product, Precision::portable, Precision::portable).value));
  }
}

TEST(ExactProducts, MatricesOfABatchAreMultipliedOneByOne) {
  const Tensor a = normal({3, 4, 5}, "a"), b = normal({5, 6}, "b");
  const PrecisionScope scope(Precision::exact);
  const NoGrad none;
  const Tensor all = matmul(a, b).value(), both = matmul(a, b.expand({3, 5, 6})).value();
  EXPECT_TRUE(same_bits(all, both));
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(all.select(0, i), matmul(a.select(0, i), b).value())) << i;
}

TEST(ExactProducts, EmptyOperandsGiveWhatPortableOnesGive) {
  for (const Product& product : std::vector<Product>{
           {"no samples", {{0, 5}, {4, 5}, {4}}, [](const Vars& v) { return linear(v[0], v[1], v[2]); }},
           {"no rows", {{0, 5}, {5, 4}}, [](const Vars& v) { return matmul(v[0], v[1]); }},
           {"no terms", {{3, 0}, {0, 4}}, [](const Vars& v) { return matmul(v[0], v[1]); }},
           {"no matrices", {{0, 3, 5}, {0, 5, 4}}, [](const Vars& v) { return matmul(v[0], v[1]); }},
           {"no images", {{0, 5, 5, 2}, {4, 3, 3, 2}, {4}}, [](const Vars& v) { return conv2d(v[0], v[1], v[2]); }}}) {
    SCOPED_TRACE(product.name);
    expect_same(evaluate(product, Precision::exact, Precision::exact),
                evaluate(product, Precision::portable, Precision::portable));
  }
}

// Calls f in a scope of exact products. Returns the message of the error that it throws.
std::string error_of(const std::function<void()>& f) {
  const PrecisionScope scope(Precision::exact);
  try {
    f();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

Var zeros64(const Shape& shape) { return Tensor::zeros(shape, DType::f64); }

TEST(ExactProducts, OtherTypesAndShapesAreRefused) {
  const auto expect_error = [](const std::function<void()>& f, const std::string& text) {
    const std::string error = error_of(f);
    EXPECT_NE(error.find(text), std::string::npos) << "expected \"" << text << "\" in \"" << error << "\"";
  };
  const std::string float32 = "float32 of shape (rows, positions, channels) expected, got float64";
  expect_error([] { linear(zeros64({2, 3}), zeros64({4, 3})); }, "[quantize_weight] " + float32);
  expect_error([] { linear(zeros64({2, 3}), zeros({4, 3})); }, "[quantize_rows] " + float32);
  expect_error([] { matmul(zeros({2, 3}), zeros64({3, 4})); }, "[quantize_rows] " + float32);
  expect_error([] { conv2d(zeros64({1, 5, 5, 3}), zeros64({4, 3, 3, 3})); }, "[quantize_weight] " + float32);

  expect_error(
      [] {
        linear(zeros({2, 3}), zeros({4, 5}));
      },
      "[linear] the last extent of the input (2, 3) must be that of weight (4, 5)");
  expect_error(
      [] {
        linear(zeros({2, 3}), zeros({4, 3}), zeros({5}));
      },
      "the bias must be float32 of shape (4,), got float32 of shape (5,)");
  expect_error([] { linear(zeros({2, 3}), zeros({4, 3}), zeros64({4})); }, "the bias must be float32 of shape (4,)");
  expect_error(
      [] {
        matmul(zeros({2, 3}), zeros({4, 5}));
      },
      "[matmul] matrices with equal inner extents expected, shapes are (2, 3) and (4, 5)");
  expect_error([] { matmul(zeros({3}), zeros({3, 5})); }, "[matmul] matrices");
  expect_error([] { matmul(zeros({2, 2, 3}), zeros({4, 3, 5})); }, "do not broadcast");
  expect_error([] { conv2d(zeros({1, 5, 5, 3}), zeros({4, 3, 3, 2})); }, "[conv2d] channels must match");
  expect_error(
      [] {
        conv2d(zeros({1, 5, 5, 3}), zeros({4, 3, 3, 3}), zeros({3}));
      },
      "the bias must be float32 of shape (4,), got float32 of shape (3,)");
}

// One rounding for weights that take the same input: the bits are those of one layer with all of their rows.
TEST(ExactProducts, LinearsOfOneInputAreOneLinear) {
  const int64_t rows = 5, in = 7;
  const auto values = [](const Shape& shape, double scale) {
    Tensor t = Tensor::empty(shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(scale * std::sin(1.7 * i + scale));
    return t;
  };
  for (const bool with_bias : {false, true}) {
    const Var x(values({rows, in}, 1.0), true), a(values({3, in}, 0.3), true), b(values({4, in}, 2.0), true),
        bias_a = with_bias ? Var(values({3}, 0.5), true) : Var{},
        bias_b = with_bias ? Var(values({4}, 0.7), true) : Var{};
    const Tensor dy = values({rows, 7}, 1.3);
    const auto gradients = [&](const std::function<Var()>& f) {
      for (Var v : {x, a, b, bias_a, bias_b})
        if (v.defined()) v.clear_grad();
      const PrecisionScope scope(Precision::exact);
      const Var y = f();
      backward(sum(y * Var(dy)));
      std::vector<Tensor> all{y.value()};
      for (const Var& v : {x, a, b, bias_a, bias_b})
        if (v.defined()) all.push_back(v.grad());
      return all;
    };
    const std::vector<Tensor> jointly = gradients([&] {
      return concat(linears(x, {{a, bias_a}, {b, bias_b}}), 1);
    }),
                              as_one = gradients([&] {
                                return linear(x, concat({a, b}, 0), with_bias ? concat({bias_a, bias_b}, 0) : Var{});
                              });
    ASSERT_EQ(jointly.size(), as_one.size());
    for (size_t i = 0; i < jointly.size(); ++i) EXPECT_TRUE(same_bits(jointly[i], as_one[i])) << i;
    const std::vector<Var> portable = linears(x, {{a, bias_a}, {b, bias_b}});
    EXPECT_TRUE(same_bits(portable[1].value(), linear(x, b, bias_b).value()));
  }
  const Var x(values({rows, in}, 1.0)), w(values({3, in}, 1.0)), bias(values({3}, 1.0));
  const PrecisionScope scope(Precision::exact);
  EXPECT_THROW(linears(x, {{w, bias}, {w, {}}}), UsageError);
  EXPECT_THROW(linears(x, {{w, {}}, {Var(values({3, 6}, 1.0)), {}}}), UsageError);
}

TEST(ExactProducts, CopiesForShardsShareTheirRoundedNumbers) {
  const PrecisionScope scope(Precision::exact);
  const Var x(normal({5, 8}, "x"), true);
  const std::vector<Var> copies = copy_to_shards(x, {.count = 2});
  const Tensor w = normal({3, 8}, "w");
  const Var first = linear(copies[0], Var(w, true));
  const auto kept = copies[0].rounded()->lock();
  ASSERT_NE(kept.get(), nullptr);
  const Var second = linear(copies[1], Var(neg(w), true));  // the exponents of its channels are equal
  EXPECT_EQ(copies[1].rounded()->lock().get(), kept.get());
  Tensor uneven = w.clone();
  for (int64_t row = 0; row < 3; ++row) uneven.data<float>()[8 * row] *= 0x1p-6f;
  const Var third = linear(copies[1], Var(uneven, true));
  EXPECT_NE(copies[1].rounded()->lock().get(), kept.get());
}

}  // namespace
}  // namespace elinvar::test
