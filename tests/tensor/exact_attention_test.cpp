// Attention with exact products: against the same computation made of exact matrix products, one query at a time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tensor/numerics.h"
#include "tensor/ops/exact_attention.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/tensor/exact_reference.h"

namespace elinvar::test {
namespace {

Tensor random_heads(const Shape& shape, uint64_t seed) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float u = uniform01(philox(seed, static_cast<uint32_t>(i), 0, 0, 0).v[0]) * 2 - 1;
    x.data<float>()[i] = std::ldexp(u, static_cast<int>(i / shape[3] % 5) - 2);  // rows have exponents of their own
  }
  return x;
}

// Head h of batch b of x (B, T, H, D), rows [first, last), as (rows, 1, D).
Tensor rows_of_head(const Tensor& x, int64_t b, int64_t h, int64_t first, int64_t last) {
  return x.select(0, b).select(1, h).slice(0, first, last).to_contiguous().reshape({last - first, 1, x.dim(3)});
}

struct AttentionCase {
  int64_t batch, tq, tk, heads, kv_heads, size;
  bool causal;
};

struct Attended {
  AttentionResult result;
  AttentionGradients gradients;
};

// Sums over queries are exact in blocks of this many.
constexpr int64_t kSummedQueries = 64;

// The sum of a b by rule 11; rows of at most a segment.
float row_dot(const Tensor& a, const Tensor& b) {
  std::array<float, kRowLanes> lanes = {};
  for (int64_t i = 0; i < a.numel(); ++i) {
    float& lane = lanes[static_cast<size_t>(i % kRowLanes)];
    lane = std::fma(a.data<float>()[i], b.data<float>()[i], lane);
  }
  for (size_t half = lanes.size() / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

Attended attention_by_products(const AttentionCase& c, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& d_o) {
  const double scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.size)));
  Attended a{{Tensor::zeros(q.shape(), DType::f32), Tensor::zeros({c.batch, c.heads, c.tq}, DType::f32),
              Tensor::zeros({c.batch, c.heads, c.tq}, DType::f32)},
             {Tensor::zeros(q.shape(), DType::f32), Tensor::zeros(k.shape(), DType::f32),
              Tensor::zeros(k.shape(), DType::f32)}};
  const Tensor none = Tensor::zeros({c.size}, DType::i32);
  const auto row_of = [&](Tensor& t, int64_t b, int64_t i, int64_t h) {
    return t.data<float>() + ((b * t.dim(1) + i) * t.dim(2) + h) * t.dim(3);
  };
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t kv = h / (c.heads / c.kv_heads);
      Tensor p_all = Tensor::zeros({c.tq, c.tk}, DType::f32), ds_all = Tensor::zeros({c.tq, c.tk}, DType::f32);
      for (int64_t i = 0; i < c.tq; ++i) {
        const int64_t n = c.causal ? i + 1 + c.tk - c.tq : c.tk;
        const Quantized x = quantize_rows(rows_of_head(q, b, h, i, i + 1), none),
                        keys = quantize_rows(rows_of_head(k, b, kv, 0, n), none),
                        values = quantize_rows(rows_of_head(v, b, kv, 0, n), none);
        const Tensor s = mul(exact_matmul(x, keys), scale);
        float m = -INFINITY;
        for (int64_t j = 0; j < n; ++j) m = std::max(m, s.data<float>()[j]);
        const Tensor e = exp(sub(s, Tensor::full({1}, m, DType::f32))),
                     r = div(Tensor::full({1, 1}, 1.0, DType::f32), sum_to(e, {1, 1})),
                     o = mul(exact_matmul(quantize_rows(e.reshape({1, 1, n}), values.rows), pair_rows(values)), r);
        std::copy_n(o.data<float>(), c.size, row_of(a.result.o, b, i, h));
        a.result.m.data<float>()[(b * c.heads + h) * c.tq + i] = m;
        a.result.r.data<float>()[(b * c.heads + h) * c.tq + i] = r.data<float>()[0];

        const Tensor g = rows_of_head(d_o, b, h, i, i + 1), p = mul(e, r),
                     dp = exact_matmul(quantize_rows(g, none), values),
                     dot = Tensor::full({1, 1}, row_dot(g, o), DType::f32), ds = mul(mul(p, sub(dp, dot)), scale),
                     dq = exact_matmul(quantize_rows(ds.reshape({1, 1, n}), keys.rows), pair_rows(keys));
        std::copy_n(dq.data<float>(), c.size, row_of(a.gradients.dq, b, i, h));
        std::copy_n(p.data<float>(), n, p_all.data<float>() + i * c.tk);
        std::copy_n(ds.data<float>(), n, ds_all.data<float>() + i * c.tk);
      }
      const auto sum = [&](const Tensor& weights, const Tensor& rows, Tensor& to) {
        Tensor all = Tensor::zeros({c.tk, c.size}, DType::f32);
        for (int64_t q0 = 0; q0 < c.tq; q0 += kSummedQueries) {
          const int64_t q1 = std::min(c.tq, q0 + kSummedQueries), seen = c.causal ? q1 + c.tk - c.tq : c.tk;
          const Quantized y = quantize_rows(rows_of_head(rows, b, h, q0, q1), none),
                          w = quantize_channels(
                              weights.slice(0, q0, q1).slice(1, 0, seen).to_contiguous().reshape({q1 - q0, 1, seen}),
                              y.rows);
          const Tensor block = exact_matmul(w, pair_rows(y));
          for (int64_t j = 0; j < block.numel(); ++j) all.data<float>()[j] += block.data<float>()[j];
        }
        for (int64_t j = 0; j < c.tk; ++j)
          for (int64_t d = 0; d < c.size; ++d) row_of(to, b, j, kv)[d] += all.data<float>()[j * c.size + d];
      };
      sum(ds_all, q, a.gradients.dk);
      sum(p_all, d_o, a.gradients.dv);
    }
  return a;
}

// The attention of q, k, v and its gradients for d_o, computed on a device.
Attended attended(Device device, const AttentionCase& c, const std::array<Tensor, 4>& operands) {
  const Shape q_shape = operands[0].shape(), k_shape = operands[1].shape();
  const auto rounded = [&](size_t i) { return quantize_heads(operands[i].to(device)); };
  const Quantized q = rounded(0), k = rounded(1), v = rounded(2);
  AttentionResult result = exact_attention(q, k, v, q_shape, k_shape, c.causal, 0);
  AttentionGradients g =
      exact_attention_backward(operands[3].to(device), q, k, v, q_shape, k_shape, result, c.causal, 0);
  // Where a sum of weights is NaN, the largest of the numbers among the scores has no meaning.
  result.m = result.m.to(Device{}), result.r = result.r.to(Device{});
  for (int64_t i = 0; i < result.m.numel(); ++i)
    if (std::isnan(result.r.data<float>()[i])) result.m.data<float>()[i] = 0.0f;
  return {std::move(result), std::move(g)};
}

class ExactAttention : public ExactTest {};
INSTANTIATE_TEST_SUITE_P(, ExactAttention, ::testing::ValuesIn(all_devices()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });

void expect_same(const Attended& here, const Attended& expected) {
  const auto same = [](const char* what, const Tensor& a, const Tensor& b) {
    EXPECT_TRUE(same_bits(a.to(Device{}), b)) << what;
  };
  same("o", here.result.o, expected.result.o);
  same("m", here.result.m, expected.result.m);
  same("r", here.result.r, expected.result.r);
  same("dq", here.gradients.dq, expected.gradients.dq);
  same("dk", here.gradients.dk, expected.gradients.dk);
  same("dv", here.gradients.dv, expected.gradients.dv);
}

TEST_P(ExactAttention, IsMadeOfExactProducts) {
  for (const AttentionCase& c : {AttentionCase{1, 3, 3, 1, 1, 4, true},
                                 {2, 5, 9, 2, 1, 7, true},
                                 {1, 6, 4, 2, 2, 16, false},
                                 {1, 150, 150, 2, 1, 24, true},
                                 {1, 70, 131, 1, 1, 33, false},
                                 {1, 66, 129, 3, 1, 130, true},
                                 {1, 70, 97, 2, 1, 72, true}}) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys", c.tq, c.tk));
    const Tensor q = random_heads({c.batch, c.tq, c.heads, c.size}, 1),
                 k = random_heads({c.batch, c.tk, c.kv_heads, c.size}, 2),
                 v = random_heads({c.batch, c.tk, c.kv_heads, c.size}, 3), d_o = random_heads(q.shape(), 4);
    const Attended expected = attention_by_products(c, q, k, v, d_o);
    everywhere([&] { expect_same(attended(device_, c, {q, k, v, d_o}), expected); });
  }
}

// Weights that are added in several segments (rule 11), and lines with zeros, infinities and NaN.
TEST_P(ExactAttention, IsThatOfCpus) {
  if (on_cpu()) GTEST_SKIP() << "the CPU is what devices are compared with";
  for (const AttentionCase& c : {AttentionCase{1, 2, 4200, 1, 1, 2, true}, {1, 67, 80, 2, 1, 8, true}}) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys", c.tq, c.tk));
    const bool is_long = c.tk > kRowSegment;
    const Tensor q = random_heads({c.batch, c.tq, c.heads, c.size}, 1),
                 k = random_heads({c.batch, c.tk, c.kv_heads, c.size}, 2),
                 v = random_heads({c.batch, c.tk, c.kv_heads, c.size}, 3), d_o = random_heads(q.shape(), 4);
    for (const float special : {0.0f, INFINITY, NAN})
      for (size_t which = 0; which < 4; ++which) {
        if (is_long && (special != 0.0f || which > 0)) continue;
        SCOPED_TRACE(fmt::format("{} in operand {}", special, which));
        std::array<Tensor, 4> operands = {q.clone(), k.clone(), v.clone(), d_o.clone()};
        Tensor& x = operands[which];
        const int64_t row = x.dim(1) / 2 * x.dim(2) * x.dim(3);
        std::fill_n(x.data<float>() + row, special == 0.0f ? c.size : 1, special);
        expect_same(attended(device_, c, operands), attended(Device{}, c, operands));
      }
  }
}

// What a query does not see is not rounded with what it sees, however large it is.
TEST_P(ExactAttention, KeysThatAQueryDoesNotSeeDoNotMatter) {
  const AttentionCase c{1, 40, 40, 1, 1, 4, true};
  const Tensor q = random_heads({1, 40, 1, 4}, 1), d_o = random_heads(q.shape(), 2);
  for (const bool in_values : {false, true})
    for (const auto& [first, later] : {std::pair{0.0f, 40000.0f}, {0x1.8p127f, INFINITY}}) {
      SCOPED_TRACE(fmt::format("{} before {}, in values {}", first, later, in_values));
      std::array<Tensor, 4> operands = {q, random_heads(q.shape(), 3), random_heads(q.shape(), 4), d_o};
      float* const x = operands[in_values ? 2 : 1].data<float>();
      std::fill_n(x, 8 * 4, first);
      std::fill_n(x + 20 * 4, 4, later);
      const Attended expected = attended(Device{}, c, operands);
      EXPECT_TRUE(std::isfinite(expected.result.o.data<float>()[7 * 4]) || first != 0.0f);
      everywhere([&] { expect_same(attended(device_, c, operands), expected); });
    }
}

// Keys and values grow with their position, in an irregular way, so that many of them have the largest exponent for
// some of those that follow, and some terms of a sum vanish beside others.
TEST_P(ExactAttention, EachKeyMayHaveTheLargestExponent) {
  const AttentionCase c{1, 300, 300, 1, 1, 4, true};
  const Tensor q = random_heads({1, c.tq, 1, c.size}, 1);
  Tensor k = random_heads(q.shape(), 2), v = random_heads(q.shape(), 3), d_o = random_heads(q.shape(), 4);
  for (int64_t t = 0; t < c.tk; ++t) {
    const Random4 random = philox(5, static_cast<uint32_t>(t), 0, 0, 0);
    const auto scale = [&](Tensor& x, int exponent) {
      for (int64_t i = 0; i < c.size; ++i) x.data<float>()[t * c.size + i] *= std::ldexp(1.0f, exponent);
    };
    const auto growth = static_cast<int>(t / 4);
    scale(k, growth + static_cast<int>(random.v[0] % 8) - 110);
    scale(v, growth + static_cast<int>(random.v[1] % 8) - 100);
    scale(d_o, static_cast<int>(random.v[2] % 64) - 40);
  }
  const std::array<Tensor, 4> operands = {q, k, v, d_o};
  const Attended expected = attended(Device{}, c, operands);
  everywhere([&] { expect_same(attended(device_, c, operands), expected); });
}

// The largest sums of products of lower bytes are beyond int32: all but one weight are 4095 / 4096, and all values
// 8191.
TEST_P(ExactAttention, ManyKeysAreAddedExactly) {
  const AttentionCase c{1, 1, 33100, 1, 1, 2, false};
  const Tensor q = Tensor::full({1, 1, 1, 2}, 1.0, DType::f32),
               v = Tensor::full({1, c.tk, 1, 2}, 0.99999994, DType::f32), d_o = random_heads(q.shape(), 1);
  Tensor k = Tensor::full(v.shape(), -0.0001725, DType::f32);
  k.data<float>()[0] = k.data<float>()[1] = 0.0f;
  const std::array<Tensor, 4> operands = {q, k, v, d_o};
  const Attended here = attended(device_, c, operands);
  expect_same(here, attended(Device{}, c, operands));
  // 4096 + 33099 * 4095 times 8191, and o is that over the sum of the weights. A carry that is lost would change o by a
  // tenth; the sum of the weights, before they are rounded, is known to 1e-5.
  const double weights = 4096.0 + 33099.0 * 4095.0;
  EXPECT_NEAR(here.result.o.to(Device{}).data<float>()[0], weights / 4096 * (8191.0 / 8192) / 33091.9, 1e-4);
}

TEST_P(ExactAttention, TakesOneTensorOfAllThree) {
  const Shape shape{2, 70, 3, 2, 10}, heads{2, 70, 2, 10};
  const Tensor x = random_heads({2, 70, 6, 10}, 1).reshape(shape), d_o = random_heads(heads, 2);
  const auto part = [&](const Tensor& all, int64_t i) { return all.select(2, i).to_contiguous(); };
  const Quantized q = quantize_heads(part(x, 0)), k = quantize_heads(part(x, 1)), v = quantize_heads(part(x, 2));
  const AttentionResult expected = exact_attention(q, k, v, heads, heads, true, 0);
  const AttentionGradients g = exact_attention_backward(d_o, q, k, v, heads, heads, expected, true, 0);
  everywhere([&] {
    const Quantized qkv = quantize_heads(sent(x));
    const AttentionResult result = exact_self_attention(qkv, shape, true, 0);
    EXPECT_TRUE(same_bits(result.o.to(Device{}), expected.o));
    const Tensor d_qkv = exact_self_attention_backward(sent(d_o), qkv, shape, result, true, 0).to(Device{});
    EXPECT_TRUE(same_bits(part(d_qkv, 0), g.dq));
    EXPECT_TRUE(same_bits(part(d_qkv, 1), g.dk));
    EXPECT_TRUE(same_bits(part(d_qkv, 2), g.dv));
  });
}

}  // namespace
}  // namespace elinvar::test
