// The tape alone, with functions recorded here, so that nothing depends on the library's gradients.
#include <gtest/gtest.h>

#include <map>

#include "autograd/var.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

Tensor map(const Tensor& a, const Tensor& b, const std::function<float(float, float)>& f) {
  Tensor y = Tensor::empty(a.shape());
  const Tensor p = a.to_contiguous(), q = b.to_contiguous();
  for (int64_t i = 0; i < y.numel(); ++i) y.data<float>()[i] = f(p.data<float>()[i], q.data<float>()[i]);
  return y;
}

Var times(const Var& a, const Var& b, std::vector<std::string>* log = nullptr, const std::string& name = "") {
  return record(map(a.value(), b.value(), std::multiplies<float>()), {a, b}, [a, b, log, name](const Tensor& dy) {
    if (log) log->push_back(name);
    return std::vector<Tensor>{a.requires_grad() ? map(dy, b.value(), std::multiplies<float>()) : Tensor(),
                               b.requires_grad() ? map(dy, a.value(), std::multiplies<float>()) : Tensor()};
  });
}

Var total(const Var& x) {
  double s = 0.0;
  for (float v : x.value().span<float>()) s += v;
  return record(Tensor::scalar(s), {x},
                [shape = x.shape()](const Tensor& dy) { return std::vector<Tensor>{dy.expand(shape)}; });
}

Var leaf(std::vector<float> values, bool requires_grad = true) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return Var(Tensor::from(values, shape), requires_grad);
}

// Returns 2 x with an origin that counts its calls, deferred or not.
Var doubled(const Var& x, bool deferred, int& computed) {
  const auto compute = [value = x.value(), &computed] {
    ++computed;
    return map(value, value, std::plus<float>());
  };
  const auto gradient = [](const Tensor& dy) { return std::vector<Tensor>{map(dy, dy, std::plus<float>())}; };
  if (deferred) return record_deferred(x.shape(), x.dtype(), {.compute = compute}, {x}, gradient);
  return record(compute(), {x}, gradient, {.compute = compute});
}

std::vector<float> grad_of(const Var& v) {
  const Tensor g = v.grad().to_contiguous();
  return {g.span<float>().begin(), g.span<float>().end()};
}

TEST(Autograd, AProductsGradient) {
  const Var a = leaf({2, 3}), b = leaf({5, 7});
  backward(total(times(a, b)));
  EXPECT_EQ(grad_of(a), (std::vector<float>{5, 7}));
  EXPECT_EQ(grad_of(b), (std::vector<float>{2, 3}));
}

TEST(Autograd, ContributionsOfSharedInputsAreAdded) {
  const Var a = leaf({2, 3});
  const Var square = times(a, a);
  backward(total(times(square, square)));
  EXPECT_EQ(grad_of(a), (std::vector<float>{32, 108}));  // 4 a^3
}

// total() returns an expanded gradient: adding to it in place would count elements several times.
TEST(Autograd, AnExpandedGradientIsNotAddedToInPlace) {
  const Var a = leaf({2, 3, 4});
  const Var both = times(total(times(a, leaf({1, 1, 1}, false))), total(a));
  backward(both);
  EXPECT_EQ(grad_of(a), (std::vector<float>{18, 18, 18}));
  const Var c = leaf({1, 2});
  backward(times(total(c), total(c)));
  EXPECT_EQ(grad_of(c), (std::vector<float>{6, 6}));
}

TEST(Autograd, NewestFirst) {
  std::vector<std::string> log;
  const Var a = leaf({1});
  const Var first = times(a, a, &log, "first"), second = times(a, a, &log, "second"),
            third = times(first, second, &log, "third");
  const Var fourth = times(first, third, &log, "fourth");
  backward(fourth);
  EXPECT_EQ(log, (std::vector<std::string>{"fourth", "third", "second", "first"}));
}

TEST(Autograd, TheHookComesOnceALeafWithItsWholeGradient) {
  const Var a = leaf({2}), b = leaf({3}), unused = leaf({4}), constant = leaf({5}, false);
  std::map<const void*, std::vector<float>> ready;
  const Var y = times(times(a, constant), times(times(a, b), a));
  backward(y, [&](const Var& v) { EXPECT_TRUE(ready.emplace(v.node().get(), grad_of(v)).second) << "called twice"; });
  EXPECT_EQ(ready.size(), 2u);
  EXPECT_EQ(ready[a.node().get()], std::vector<float>{180});  // d(5 a^3 b)/da
  EXPECT_EQ(ready[b.node().get()], std::vector<float>{40});
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_FALSE(constant.grad().defined());
}

TEST(Autograd, TheHookDoesNotWaitForOlderFunctions) {
  std::vector<std::string> log;
  const Var a = leaf({2}), b = leaf({3}), c = leaf({4});
  const Var y = times(times(times(a, a, &log, "first"), b, &log, "second"), c, &log, "third");
  backward(y, [&](const Var& v) { log.push_back(v.node() == a.node() ? "a" : v.node() == b.node() ? "b" : "c"); });
  EXPECT_EQ(log, (std::vector<std::string>{"third", "c", "second", "b", "first", "a"}));
}

TEST(Autograd, GradientsAreSetNotAccumulatedOverSweeps) {
  Var a = leaf({2});
  backward(times(a, a));
  backward(times(a, a));
  EXPECT_EQ(grad_of(a), std::vector<float>{4});
  a.clear_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Autograd, NothingIsRecordedInsideNoGrad) {
  const Var a = leaf({2});
  {
    const NoGrad outer;
    { const NoGrad inner; }
    EXPECT_FALSE(times(a, a).requires_grad());
  }
  EXPECT_TRUE(times(a, a).requires_grad());
  EXPECT_FALSE(times(leaf({1}, false), leaf({1}, false)).requires_grad());
}

TEST(Autograd, TheGraphIsReleasedOnTheWay) {
  auto witness = std::make_shared<int>(0);
  const Var a = leaf({2});
  const Var y = record(Tensor::scalar(1), {a}, [witness, shape = a.shape()](const Tensor&) {
    return std::vector<Tensor>{Tensor::full(shape, 1.0)};
  });
  EXPECT_EQ(witness.use_count(), 2);
  backward(y);
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(Autograd, AnUndefinedGradientIsZero) {
  const Var a = leaf({2}), b = leaf({3});
  const Var stopped =
      record(Tensor::from(std::vector<float>{2}, {1}), {a}, [](const Tensor&) { return std::vector<Tensor>(1); });
  int leaves = 0;
  backward(times(stopped, b), [&](const Var&) { ++leaves; });
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(grad_of(b), std::vector<float>{2});
  EXPECT_EQ(leaves, 2);
}

TEST(Autograd, ADeepGraphNeedsNoDeepStack) {
  Var y = leaf({1});
  const Var start = y;
  for (int i = 0; i < 20000; ++i) y = times(y, leaf({1}, false));
  backward(y);
  EXPECT_EQ(grad_of(start), std::vector<float>{1});
  Var abandoned = leaf({1});
  for (int i = 0; i < 200000; ++i) abandoned = times(abandoned, abandoned);
}

TEST(Autograd, Errors) {
  const Var pair = leaf({1, 2});
  EXPECT_THROW(backward(times(pair, pair)), UsageError);
  EXPECT_THROW(backward(leaf({1}, false)), UsageError);
  EXPECT_THROW(Var().value(), UsageError);
  Var y = times(pair, pair);
  EXPECT_THROW(y.mutable_value(), UsageError);
  EXPECT_THROW(Var().clear_grad(), UsageError);
}

TEST(Autograd, ASweptGraphIsNotSweptAgain) {
  const Var a = leaf({2});
  Var shared = times(a, a), loss = times(shared, a);
  const Var other = times(shared, a);
  backward(loss);
  EXPECT_THROW(backward(loss), UsageError);
  EXPECT_THROW(backward(other), UsageError);
  EXPECT_THROW(shared.mutable_value(), UsageError);
  const NoGrad guard;
  Var constant = times(a, a);
  EXPECT_THROW(constant.mutable_value(), UsageError);
}

TEST(Autograd, ADeferredValueIsComputedOnceForAllCopiesWhenItIsAskedFor) {
  const Var x = leaf({1, 2});
  int computed = 0;
  const Var y = doubled(x, true, computed), copy = y;
  EXPECT_EQ(y.shape(), (Shape{2}));
  EXPECT_EQ(y.dim(0), 2);
  EXPECT_EQ(y.dtype(), DType::f32);
  ASSERT_NE(y.origin(), nullptr);
  EXPECT_EQ(computed, 0);
  EXPECT_EQ(y.value().data<float>()[1], 4.0f);
  EXPECT_TRUE(copy.value().shares_storage(y.value()));
  EXPECT_EQ(computed, 1);
  backward(total(times(y, copy)));
  EXPECT_EQ(grad_of(x), (std::vector<float>{8, 16}));
  EXPECT_EQ(computed, 1);
}

TEST(Autograd, AnOriginIsOfAValueWithAGradientOrOfADeferredOne) {
  int computed = 0;
  EXPECT_NE(doubled(leaf({1, 2}), false, computed).origin(), nullptr);
  EXPECT_EQ(doubled(leaf({1, 2}, false), false, computed).origin(), nullptr);
  const NoGrad none;
  EXPECT_EQ(doubled(leaf({1, 2}), false, computed).origin(), nullptr);
  EXPECT_EQ(doubled(leaf({1, 2}), true, computed).value().data<float>()[0], 2.0f);
  EXPECT_EQ(leaf({1, 2}).origin(), nullptr);
}

}  // namespace
}  // namespace elinvar
