// Attention with exact products: against the same computation made of exact matrix products, one query at a time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/isa.h"
#include "tensor/ops/exact_attention.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/philox.h"
#include "tests/support/amx_model.h"
#include "tests/support/bits.h"

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
                     dot = sum_to(mul(g.reshape({1, c.size}), o), {1, 1}), ds = mul(mul(p, sub(dp, dot)), scale),
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

TEST(ExactAttention, IsMadeOfExactProducts) {
  for (const AttentionCase& c : {AttentionCase{1, 3, 3, 1, 1, 4, true},
                                 {2, 5, 9, 2, 1, 7, true},
                                 {1, 6, 4, 2, 2, 16, false},
                                 {1, 150, 150, 2, 1, 24, true},
                                 {1, 70, 131, 1, 1, 33, false}}) {
    const Tensor q = random_heads({c.batch, c.tq, c.heads, c.size}, 1),
                 k = random_heads({c.batch, c.tk, c.kv_heads, c.size}, 2),
                 v = random_heads({c.batch, c.tk, c.kv_heads, c.size}, 3), d_o = random_heads(q.shape(), 4);
    const Attended expected = attention_by_products(c, q, k, v, d_o);
    for (const Isa isa : available_isas()) {
      set_isa(isa);
      for (const PairUnits units : kAllPairUnits) {
        use_units(units);
        SCOPED_TRACE(fmt::format("{} queries, {} keys, {} {}", c.tq, c.tk, name_of(isa), name_of(units)));
        const Quantized qs = quantize_heads(q), ks = quantize_heads(k), vs = quantize_heads(v);
        const AttentionResult result = exact_attention(qs, ks, vs, q.shape(), k.shape(), c.causal, 0);
        EXPECT_TRUE(same_bits(result.o, expected.result.o));
        EXPECT_TRUE(same_bits(result.m, expected.result.m));
        EXPECT_TRUE(same_bits(result.r, expected.result.r));
        const AttentionGradients g =
            exact_attention_backward(d_o, qs, ks, vs, q.shape(), k.shape(), result, c.causal, 0);
        EXPECT_TRUE(same_bits(g.dq, expected.gradients.dq));
        EXPECT_TRUE(same_bits(g.dk, expected.gradients.dk));
        EXPECT_TRUE(same_bits(g.dv, expected.gradients.dv));
      }
    }
    set_isa(available_isas().back());
    use_best_units();
  }
}

}  // namespace
}  // namespace elinvar::test
