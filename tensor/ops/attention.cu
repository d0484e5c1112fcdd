#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/math-inl.h"
#include "tensor/ops/attention.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

constexpr int kThreads = 128;
constexpr int kMostPerThread = static_cast<int>(kChunk) / kThreads;  // elements of a head that a thread sums

// The part of a sum by rule 8 that a thread holds, one term after another.
class Chain {
 public:
  __device__ void add(float a, float b) {
    chain_ = fma(V{a}, V{b}, chain_);
    if (++terms_ % kChunk == 0) close();
  }
  __device__ float total() {
    if (terms_ % kChunk != 0) close();
    return (total_ + group_).v;
  }

 private:
  __device__ void close() {
    group_ = group_ + chain_;
    chain_ = V{0.0f};
    if ((terms_ + kChunk - 1) / kChunk % kGroup != 0) return;
    total_ = total_ + group_;
    group_ = V{0.0f};
  }
  V chain_{0.0f}, group_{0.0f}, total_{0.0f};
  int64_t terms_ = 0;
};

// At most kChunk terms.
__device__ float product(const float* a, const float* b, int64_t n) {
  V acc{0.0f};
  for (int64_t d = 0; d < n; ++d) acc = fma(V{a[d]}, V{b[d]}, acc);
  return acc.v;
}

// Where a block works: one row (b, h, t), the last counting fastest.
struct Row {
  int64_t t, h, b;
  __device__ Row(int64_t row, int64_t heads, int64_t time)
      : t(row % time), h(row / time % heads), b(row / time / heads) {}
};

__device__ float block_max(float m) {
  __shared__ float of_warp[kThreads / 32];
  for (int s = 16; s > 0; s /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, m, s);
    m = m < other ? other : m;
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = m;
  __syncthreads();
  for (float other : of_warp) m = m < other ? other : m;
  return m;
}

// A block for each query; its scores lie in shared memory.
__global__ void __launch_bounds__(kThreads) forward_queries(AttentionArgs a) {
  const AttentionShape& s = a.s;
  const Row row(blockIdx.x, s.heads, s.tq);
  const int64_t kv = row.h / (s.heads / s.kv_heads), n = s.visible(row.t);
  const int t = static_cast<int>(threadIdx.x);
  const float* q = a.q.of<float>(row.b, row.h) + row.t * a.q.time;
  const float *k = a.k.of<float>(row.b, kv), *v = a.v.of<float>(row.b, kv);
  float* weights = dynamic_shared<float>();
  __shared__ float r_shared;

  const float scale = static_cast<float>(s.scale);
  float m = -std::numeric_limits<float>::infinity();
  for (int64_t j = t; j < n; j += kThreads) {
    const float x = product(q, k + j * a.k.time, s.size) * scale;
    weights[j] = x;
    m = m < x ? x : m;
  }
  m = block_max(m);
  for (int64_t j = t; j < n; j += kThreads) weights[j] = exp(V{weights[j]} - V{m}).v;
  __syncthreads();
  if (t < 32) {
    const float l = warp_row_sum<float>(n, [&](int64_t j) { return weights[j]; });
    if (t == 0) {
      r_shared = 1.0f / l;
      a.m.as<float>()[blockIdx.x] = m;
      a.r.as<float>()[blockIdx.x] = r_shared;
    }
  }
  __syncthreads();
  float* o = a.o.of<float>(row.b, row.h) + row.t * a.o.time;
  for (int64_t d = t; d < s.size; d += kThreads) {
    Chain sum;
    for (int64_t j = 0; j < n; ++j) sum.add(weights[j], v[j * a.v.time + d]);
    o[d] = sum.total() * r_shared;
  }
}

// What a query and a key give the gradients: p, and ds from the query's sum(do * o).
struct Pair {
  float p, ds;
};
__device__ Pair pair_of(const AttentionBackwardArgs& a, const float* q, const float* d_o, const float* k,
                        const float* v, float m, float r, float dot) {
  const float scale = static_cast<float>(a.s.scale);
  const float p = (exp(V{product(q, k, a.s.size) * scale - m}) * V{r}).v;
  return {p, (p * (product(d_o, v, a.s.size) - dot)) * scale};
}

// sum(do * o) of each query, a warp each.
__global__ void query_dots(AttentionBackwardArgs a, float* dots) {
  const int64_t at = thread_of_grid() / 32;
  if (at >= a.s.batch * a.s.heads * a.s.tq) return;
  const Row row(at, a.s.heads, a.s.tq);
  const float* d_o = a.d_o.of<float>(row.b, row.h) + row.t * a.d_o.time;
  const float* o = a.o.of<float>(row.b, row.h) + row.t * a.o.time;
  const float dot = warp_row_dot<float>(
      a.s.size, [&](int64_t d) { return d_o[d]; }, [&](int64_t d) { return o[d]; });
  if (threadIdx.x % 32 == 0) dots[at] = dot;
}

// A block for each query, as in the forward pass.
__global__ void __launch_bounds__(kThreads) query_gradients(AttentionBackwardArgs a, const float* dots) {
  const AttentionShape& s = a.s;
  const Row row(blockIdx.x, s.heads, s.tq);
  const int64_t kv = row.h / (s.heads / s.kv_heads), n = s.visible(row.t);
  const int t = static_cast<int>(threadIdx.x);
  const float* q = a.q.of<float>(row.b, row.h) + row.t * a.q.time;
  const float* d_o = a.d_o.of<float>(row.b, row.h) + row.t * a.d_o.time;
  const float *k = a.k.of<float>(row.b, kv), *v = a.v.of<float>(row.b, kv);
  const float m = a.m.as<float>()[blockIdx.x], r = a.r.as<float>()[blockIdx.x], dot = dots[blockIdx.x];
  float* ds = dynamic_shared<float>();
  for (int64_t j = t; j < n; j += kThreads)
    ds[j] = pair_of(a, q, d_o, k + j * a.k.time, v + j * a.v.time, m, r, dot).ds;
  __syncthreads();
  float* dq = a.dq.of<float>(row.b, row.h) + row.t * a.dq.time;
  for (int64_t d = t; d < s.size; d += kThreads) {
    Chain sum;
    for (int64_t j = 0; j < n; ++j) sum.add(ds[j], k[j * a.k.time + d]);
    dq[d] = sum.total();
  }
}

// A block for each key: its threads find p and ds of as many queries at once, and then each sums its elements of dk and
// dv over them. Queries that do not see the key are zero terms.
__global__ void __launch_bounds__(kThreads) key_gradients(AttentionBackwardArgs a, const float* dots) {
  const AttentionShape& s = a.s;
  const Row row(blockIdx.x, s.kv_heads, s.tk);
  const int64_t shared = s.heads / s.kv_heads;
  const int t = static_cast<int>(threadIdx.x);
  const float* k = a.k.of<float>(row.b, row.h) + row.t * a.k.time;
  const float* v = a.v.of<float>(row.b, row.h) + row.t * a.v.time;
  __shared__ float p_of[kThreads], ds_of[kThreads];
  float dk[kMostPerThread] = {}, dv[kMostPerThread] = {};
  for (int64_t h = row.h * shared; h < (row.h + 1) * shared; ++h) {
    const float *q = a.q.of<float>(row.b, h), *d_o = a.d_o.of<float>(row.b, h);
    const int64_t first = (row.b * s.heads + h) * s.tq;
    Chain dk_sum[kMostPerThread], dv_sum[kMostPerThread];
    for (int64_t q0 = 0; q0 < s.tq; q0 += kThreads) {
      const int64_t i = q0 + t;
      Pair pair{0.0f, 0.0f};
      if (i < s.tq && row.t < s.visible(i))
        pair = pair_of(a, q + i * a.q.time, d_o + i * a.d_o.time, k, v, a.m.as<float>()[first + i],
                       a.r.as<float>()[first + i], dots[first + i]);
      p_of[t] = pair.p;
      ds_of[t] = pair.ds;
      __syncthreads();
      const int count = static_cast<int>(s.tq - q0 < kThreads ? s.tq - q0 : kThreads);
      for (int e = 0; e < kMostPerThread && t + e * kThreads < s.size; ++e) {
        const int64_t d = t + e * kThreads;
        for (int j = 0; j < count; ++j) {
          dk_sum[e].add(ds_of[j], q[(q0 + j) * a.q.time + d]);
          dv_sum[e].add(p_of[j], d_o[(q0 + j) * a.d_o.time + d]);
        }
      }
      __syncthreads();
    }
    for (int e = 0; e < kMostPerThread; ++e) {
      dk[e] = dk[e] + dk_sum[e].total();
      dv[e] = dv[e] + dv_sum[e].total();
    }
  }
  for (int e = 0; e < kMostPerThread && t + e * kThreads < s.size; ++e) {
    const int64_t d = t + e * kThreads;
    (a.dk.of<float>(row.b, row.h) + row.t * a.dk.time)[d] = dk[e];
    (a.dv.of<float>(row.b, row.h) + row.t * a.dv.time)[d] = dv[e];
  }
}

// The scores of one query.
size_t shared_bytes(const AttentionShape& s) {
  const auto bytes = static_cast<size_t>(s.tk) * sizeof(float);
  if (bytes > most_shared())
    throw UsageError("[attention] this GPU takes at most " + std::to_string(most_shared() / sizeof(float)) +
                     " keys, got " + std::to_string(s.tk) + "; use --device cpu, or a shorter data.context");
  return bytes;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void attention(Gpu& stream, const AttentionArgs& a) {
  launch(stream, "attention",
         {.blocks = a.s.batch * a.s.heads * a.s.tq,
          .threads = HWY_NAMESPACE::kThreads,
          .shared = HWY_NAMESPACE::shared_bytes(a.s)},
         HWY_NAMESPACE::forward_queries, a);
}

template <>
void attention_backward(Gpu& stream, const AttentionBackwardArgs& a) {
  const int64_t queries = a.s.batch * a.s.heads * a.s.tq;
  const DeviceScratch<float> dots(stream, queries);
  launch(stream, "attention_query_dots", {.blocks = warp_blocks(queries)}, HWY_NAMESPACE::query_dots, a, dots.data());
  launch(stream, "attention_query_gradients",
         {.blocks = queries, .threads = HWY_NAMESPACE::kThreads, .shared = HWY_NAMESPACE::shared_bytes(a.s)},
         HWY_NAMESPACE::query_gradients, a, dots.data());
  launch(stream, "attention_key_gradients",
         {.blocks = a.s.batch * a.s.kv_heads * a.s.tk, .threads = HWY_NAMESPACE::kThreads},
         HWY_NAMESPACE::key_gradients, a, dots.data());
}

}  // namespace elinvar
