// The router of a mixture of experts, and the traffic between tokens and experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/experts.h"
#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "autograd/shards.h"
#include "tensor/ops/experts.h"
#include "tests/ops/op_inputs.h"
#include "tests/ops/op_row.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

// Choices of tokens in the order of route.h, by sorting.
std::vector<int64_t> sorted_experts(const Tensor& logits, int64_t token) {
  const int64_t n = logits.dim(1);
  const double* x = logits.data<double>() + token * n;
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t i) { return x[i]; });
  return order;
}

std::vector<double> softmax_of(const Tensor& logits, int64_t token) {
  const int64_t n = logits.dim(1);
  const double *x = logits.data<double>() + token * n, m = *std::max_element(x, x + n);
  std::vector<double> p(x, x + n);
  for (double& v : p) v = std::exp(v - m);
  const double l = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= l;
  return p;
}

double weight_oracle(const Tensor& logits, int64_t token, int64_t k, int64_t choice) {
  const std::vector<double> p = softmax_of(logits, token);
  const std::vector<int64_t> order = sorted_experts(logits, token);
  double all = 0;
  for (int64_t j = 0; j < k; ++j) all += p[static_cast<size_t>(order[static_cast<size_t>(j)])];
  return p[static_cast<size_t>(order[static_cast<size_t>(choice)])] / (k == 1 ? 1.0 : all);
}

Tensor weights_oracle(const Tensor& logits, int64_t k) {
  Tensor y = Tensor::empty({k, logits.dim(0)}, DType::f64);
  for (int64_t i = 0; i < y.numel(); ++i)
    y.data<double>()[i] = weight_oracle(logits, i % logits.dim(0), k, i / logits.dim(0));
  return y;
}

// A mixture of experts that multiply by a number of their own, token by token.
Tensor mixture_oracle(const Tensors& t, int64_t k, int64_t capacity) {
  const int64_t tokens = t[0].dim(0), cols = t[0].dim(1);
  Tensor y = Tensor::zeros({tokens, cols}, DType::f64);
  std::vector<int64_t> served(static_cast<size_t>(t[1].dim(1)));
  for (int64_t j = 0; j < k; ++j)
    for (int64_t token = 0; token < tokens; ++token) {
      const auto expert = static_cast<size_t>(sorted_experts(t[1], token)[static_cast<size_t>(j)]);
      if (served[expert]++ >= capacity) continue;
      for (int64_t c = 0; c < cols; ++c)
        y.data<double>()[token * cols + c] +=
            weight_oracle(t[1], token, k, j) * t[0].data<double>()[token * cols + c] * t[2].data<double>()[expert];
    }
  return y;
}

Var mixture(const Vars& v, int64_t k, int64_t capacity, int shards = 1) {
  const Routing routing = route(v[1], k);
  const int64_t experts = v[1].dim(1);
  const Shards all{.count = shards};
  const std::vector<Var> weights = copy_to_shards(routing.weight, all);
  const auto of_shard = [&](const Var& x, size_t s) {
    const IndexShard own = shard_of(experts, static_cast<int>(s), shards);
    const Var factors = reshape(slice(v[2], 0, own.first, own.first + own.count), {own.count, 1, 1});
    return combine(dispatch(x, routing, capacity, own) * factors, weights[s], routing, own);
  };
  return reduce_from_shards(map_shards(v[0], all, of_shard), all);
}

// The router's losses as a value whose gradient is that which route() adds.
Var router_losses(const Var& logits, int64_t k, const RouterLosses& losses) {
  const Routes routes = route(logits.value(), k);
  const Tensor x = logits.value().to(Device{}).to(DType::f64).to_contiguous(), start = routes.start.to(Device{});
  const auto tokens = static_cast<double>(x.dim(0)), experts = static_cast<double>(x.dim(1));
  double value = 0;
  for (int64_t t = 0; t < x.dim(0); ++t) {
    const std::vector<double> p = softmax_of(x, t);
    for (size_t e = 0; e < p.size(); ++e)
      value += losses.balance_weight * experts * p[e] *
               static_cast<double>(start.data<int64_t>()[e + 1] - start.data<int64_t>()[e]) /
               (static_cast<double>(k) * tokens);
    const auto first = static_cast<size_t>(sorted_experts(x, t)[0]);
    value += losses.z_weight *
             std::pow(x.data<double>()[t * x.dim(1) + static_cast<int64_t>(first)] - std::log(p[first]), 2);
  }
  return record(Tensor::scalar(value, logits.dtype()).to(logits.value().device()), {logits},
                [routes, v = logits.value(), losses](const Tensor& dy) {
                  const double scale = dy.to(Device{}).item();
                  return std::vector<Tensor>{route_backward(Tensor::zeros(routes.weight.shape(), v.dtype(), v.device()),
                                                            v, routes.weight, routes.expert, routes.start,
                                                            {scale * losses.balance_weight, scale * losses.z_weight})};
                });
}

std::vector<int64_t> integers_of(const Tensor& x) { return {x.data<int64_t>(), x.data<int64_t>() + x.numel()}; }
using List = std::vector<int64_t>;

TEST(Route, TiesAndTheOrderOfService) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from<float>({1, 1, 1,      //
                                        0, -0.0f, 0,  //
                                        -inf, 2, 2,   //
                                        3, 2, 4},
                                       {4, 3});
  const Routes r = route(x, 2);
  EXPECT_EQ(integers_of(r.expert), (List{0, 0, 1, 2, 1, 1, 2, 0}));
  EXPECT_EQ(integers_of(r.start), (List{0, 3, 6, 8}));
  EXPECT_EQ(integers_of(r.order), (List{0, 1, 7, 2, 4, 5, 3, 6}));
  EXPECT_EQ(integers_of(r.position), (List{0, 1, 0, 0, 1, 2, 1, 2}));
  EXPECT_TRUE(same_bits(r.weight.slice(1, 0, 3), Tensor::full({2, 3}, 0.5)));
}

TEST(Route, WhatIsNoNumber) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from<float>({nan, 1, 2, nan, nan, nan, 1, inf, 0, -inf, -inf, -inf, -inf, 1, -inf}, {5, 3});
  for (const int64_t k : {1, 2}) {
    const Routes r = route(x, k);
    const Tensor dx = route_backward(Tensor::full({k, 5}, 1.0), x, r.weight, r.expert, r.start, {.balance_weight = 1});
    for (int64_t j = 0; j < k; ++j)
      for (int64_t t = 0; t < 4; ++t) EXPECT_TRUE(std::isnan(r.weight.data<float>()[j * 5 + t])) << t;
    for (int64_t i = 0; i < 12; ++i) EXPECT_TRUE(std::isnan(dx.data<float>()[i])) << i;
    EXPECT_TRUE(same_bits(r.weight.select(0, 0).slice(0, 4, 5), Tensor::full({1}, 1.0)));
  }
  EXPECT_EQ(integers_of(route(x, 3).expert), (List{2, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 2, 2, 2, 2}));
}

// The capacity is exceeded by choices that come later, whichever tokens they are of.
TEST(Experts, LaterChoicesAreDropped) {
  const Tensor logits = Tensor::from<float>({2, 1, 0, 2, 1, 0, 2, 1, 0, 1, 2, 0}, {4, 3});
  const Routing routing = route(Var(logits), 2);
  EXPECT_EQ(loads_of(routing), (List{4, 4, 0}));
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {4, 1});
  const IndexShard all{0, 3, 3};
  EXPECT_TRUE(
      same_bits(dispatch(Var(x), routing, 2, all).value().reshape({6}), Tensor::from<float>({1, 2, 4, 1, 0, 0}, {6})));
  const Tensor kept = combine(Var(Tensor::full({3, 2, 1}, 1.0)), Var(Tensor::full({2, 4}, 1.0)), routing, all).value();
  EXPECT_TRUE(same_bits(kept.reshape({4}), Tensor::from<float>({2, 1, 0, 1}, {4})));
}

// Indices from a file may be anything; they reach no memory that is not theirs.
TEST(Experts, PassOverWrongIndices) {
  const Tensor wrong = Tensor::from<int64_t>({-1, 7, int64_t{1} << 62, -(int64_t{1} << 62)}, {4}),
               x = Tensor::full({2, 3}, 1.0);
  const Tensor wide = wrong.reshape({2, 2});
  const IndexShard all{0, 3, 3};
  EXPECT_TRUE(
      same_bits(dispatch(x, {}, wrong, Tensor::from<int64_t>({0, 2, 3, 4}, {4}), 2, all), Tensor::zeros({3, 2, 3})));
  EXPECT_TRUE(
      same_bits(dispatch(x, {}, wrong, Tensor::from<int64_t>({-5, -3, 4, 99}, {4}), 2, all), Tensor::zeros({3, 2, 3})));
  EXPECT_TRUE(same_bits(combine(Tensor::full({3, 2, 3}, 1.0), {}, wide, wide, all), Tensor::zeros({2, 3})));
  EXPECT_TRUE(same_bits(combine_weight(x, Tensor::full({3, 2, 3}, 1.0), wide, wide, all), Tensor::zeros({2, 2})));
  const Tensor logits = Tensor::full({2, 3}, 1.0), w = Tensor::full({2, 2}, 0.5);
  EXPECT_TRUE(same_bits(route_backward(w, logits, w, wide, Tensor::zeros({4}, DType::i64), {}), Tensor::zeros({2, 3})));
}

const OpRows expert_rows({
    {.name = "route",
     .inputs = {{{37, 5}, Input::Kind::distinct}},
     .op = [](const Vars& v) { return route(v[0], 2).weight; },
     .oracle = [](const Tensors& t) { return weights_oracle(t[0], 2); },
     .large = {{{301, 64}, Input::Kind::distinct}},
     .errors = {{[] {
                   route(zeros({3, 4}), 5);
                 },
                 "[route] each token can choose 1 to 4 of 4 experts, not 5"},
                {[] {
                   route(zeros({3, 4}), 0);
                 },
                 "[route] each token can choose 1 to 4 of 4 experts, not 0"},
                {[] {
                   route(zeros({2, 3, 4}), 1);
                 },
                 "[route] logits (tokens, experts) of at most 4096 experts expected, shape is (2, 3, 4)"},
                {[] {
                   const Tensor x = Tensor::zeros({3, 4});
                   const Routes r = route(x, 2);
                   route_backward(r.weight, x, r.weight, r.expert, Tensor::zeros({4}, DType::i64), {});
                 },
                 "[route_backward] start must be int64 of shape (5,), got int64 of shape (4,)"}}},
    {.name = "route/many",
     .inputs = {{{9, 40}, Input::Kind::distinct}},
     .op = [](const Vars& v) { return route(v[0], 7).weight; },
     .oracle = [](const Tensors& t) { return weights_oracle(t[0], 7); },
     .large = {{{301, 300}, Input::Kind::distinct}}},
    {.name = "route/one",
     .inputs = {{{37, 5}, Input::Kind::distinct}},
     .op = [](const Vars& v) { return route(v[0], 1).weight; },
     .oracle = [](const Tensors& t) { return weights_oracle(t[0], 1); },
     .large = {{{301, 300}, Input::Kind::distinct}}},
    {.name = "route/losses",
     .inputs = {{{23, 5}, Input::Kind::distinct}},
     .op = [](const Vars& v) { return router_losses(v[0], 2, {.balance_weight = 0.5, .z_weight = 0.25}); },
     .oracle =
         [](const Tensors& t) { return router_losses(t[0], 2, {.balance_weight = 0.5, .z_weight = 0.25}).value(); },
     .large = {{{40, 300}, Input::Kind::distinct}}},
    {.name = "experts",
     .inputs = {{{23, 19}}, {{23, 5}, Input::Kind::distinct}, {{5}}},
     .op = [](const Vars& v) { return mixture(v, 2, 8); },
     .oracle = [](const Tensors& t) { return mixture_oracle(t, 2, 8); },
     .large = {{{301, 130}}, {{301, 16}, Input::Kind::distinct}, {{16}}},
     .errors = {{[] {
                   dispatch(zeros({3, 2}), route(zeros({3, 4}), 1), 0, {0, 4, 4});
                 },
                 "[dispatch] a capacity above 0 expected, got 0"},
                {[] {
                   dispatch(zeros({3, 2}), route(zeros({3, 4}), 1), 1, {2, 3, 4});
                 },
                 "[dispatch] experts [2, 5) are no shard of 4"},
                {[] {
                   dispatch(zeros({3}), route(zeros({3, 4}), 1), 1, {0, 4, 4});
                 },
                 "[dispatch] rows of tokens (tokens, channels) expected, shape is (3,)"},
                {[] {
                   dispatch(zeros({5, 2}), route(zeros({3, 4}), 1), 1, {0, 4, 4});
                 },
                 "[dispatch] 3 choices of 5 tokens"},
                {[] {
                   combine(zeros({2, 2, 2}), zeros({1, 3}), route(zeros({3, 4}), 1), {0, 4, 4});
                 },
                 "[combine] rows of experts (4, capacity, channels) expected, shape is (2, 2, 2)"},
                {[] {
                   combine(zeros({4, 2, 2}), zeros({2, 3}), route(zeros({3, 4}), 1), {0, 4, 4});
                 },
                 "[combine] weight must be float32 of shape (1, 3), got float32 of shape (2, 3)"},
                {[] {
                   const Routes r = route(Tensor::zeros({3, 4}), 1);
                   combine_weight(Tensor::zeros({2, 2}), Tensor::zeros({4, 2, 2}), r.expert, r.position, {0, 4, 4});
                 },
                 "[combine_weight] a gradient of shape (3, 2) expected, got (2, 2)"}}},
    {.name = "experts/shards",
     .inputs = {{{23, 19}}, {{23, 9}, Input::Kind::distinct}, {{9}}},
     .op = [](const Vars& v) { return mixture(v, 7, 15, 2); },
     .oracle = [](const Tensors& t) { return mixture_oracle(t, 7, 15); },
     .large = {{{9, 4200}}, {{9, 9}, Input::Kind::distinct}, {{9}}}},
});

}  // namespace
}  // namespace elinvar::test
