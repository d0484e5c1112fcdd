#pragma once
// Statistics of queries and formulas (ops/attention.h) for the gradients of portable and of exact attention.
#include "tensor/cuda/attention_tile.h"
#include "tensor/cuda/reduce.h"
#include "tensor/math-inl.h"

namespace elinvar::HWY_NAMESPACE {

struct QueryStats {
  float m, r, dot;
};

// Computes sum(do * o) of each query, one warp each.
static __global__ void query_dots(AttentionShape s, HeadsView d_o_of, HeadsView o_of, float* dots) {
  const int64_t at = thread_of_grid() / 32;
  if (at >= s.batch * s.heads * s.tq) return;
  const int64_t t = at % s.tq, h = at / s.tq % s.heads, b = at / s.tq / s.heads;
  const float* d_o = d_o_of.of<float>(b, h) + t * d_o_of.time;
  const float* o = o_of.of<float>(b, h) + t * o_of.time;
  const float dot = warp_row_dot<float>(
      s.size, [&](int64_t d) { return d_o[d]; }, [&](int64_t d) { return o[d]; });
  if (threadIdx.x % 32 == 0) dots[at] = dot;
}

// Loads the queries [first, first + kCount) of head h, one thread each. Args has s, m and r.
template <class Args, int kCount>
__device__ void load_stats(const Args& a, const float* dots, int64_t b, int64_t h, int first,
                           QueryStats (&stats)[kCount]) {
  if (threadIdx.x >= kCount) return;
  const int i = first + static_cast<int>(threadIdx.x);
  const int64_t at = (b * a.s.heads + h) * a.s.tq + i;
  stats[threadIdx.x] = i < a.s.tq ? QueryStats{a.m.template as<float>()[at], a.r.template as<float>()[at], dots[at]}
                                  : QueryStats{0.0f, 0.0f, 0.0f};
}
__device__ inline float probability(Vec<float> product, Vec<float> scale, const QueryStats& query) {
  using V = Vec<float>;
  return (exp(product * scale - V{query.m}) * V{query.r}).v;
}
__device__ inline float score_gradient(float p, Vec<float> product, Vec<float> scale, const QueryStats& query) {
  using V = Vec<float>;
  return ((V{p} * (product - V{query.dot})) * scale).v;
}

}  // namespace elinvar::HWY_NAMESPACE
