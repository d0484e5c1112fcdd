#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/cuda/tensor_core.h"
#include "tensor/fast_product.h"

// Attention on tensor cores, in the form of FlashAttention-2 (Dao 2023): a block keeps 64 queries (or keys, for their
// gradients), 16 a warp, and passes over tiles of the others in shared memory; scores stay in registers. Softmax has a
// running maximum. Nothing is added across blocks, so the gradient of keys and that of queries are two kernels, each of
// which computes the scores anew.
//
// Heads are padded with zeros to kSize, one of 32, 64 and 128.
namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

constexpr int kThreads = 128, kRows = 64;
constexpr int kColumnsOfWarp = 8, kDepth = 16;  // of one product of a warp
constexpr double kLog2E = 1.44269504088896340736;

// Elements from row to row in shared memory: 8 more than a row has, so that the lanes of a warp read from 32 banks.
constexpr int step_of(int row) { return row + 8; }

// 2^x for x up to 127, of which bfloat16 will be left: relative error below 3e-6, and never less than 2^-126. The
// Taylor series of e^(f ln 2) for the distance f to the nearest integer.
__device__ float exp2_of(float x) {
  if (!(x <= 127.0f)) return x;
  x = x < -126.0f ? -126.0f : x;
  const V n = rint(V{x}), f = V{x} - n;
  V y = fma(V{1.33335581e-3f}, f, V{9.61812911e-3f});
  y = fma(y, f, V{5.55041087e-2f});
  y = fma(y, f, V{2.40226507e-1f});
  y = fma(y, f, V{6.93147181e-1f});
  y = fma(y, f, V{1.0f});
  return float_of(bits_of(y) + shift_left<23>(to_int(n))).v;
}

// Rows [first, end) of one head, as bfloat16, `step` elements apart.
struct HeadRows {
  const bf16* data;
  int64_t step, size;
  __device__ HeadRows(const HeadsView& heads, int64_t b, int64_t h, int64_t size_)
      : data(heads.of<bf16>(b, h)), step(heads.time), size(size_) {}

  struct alignas(16) Eight {
    bf16 at[8];
  };
  // Elements d .. d + 7 of a row; zeros beyond `end` and beyond the head.
  __device__ Eight eight(int64_t row, int64_t end, int d) const {
    Eight found;
    for (bf16& x : found.at) x.bits = 0;
    if (row >= end || d >= size) return found;
    const bf16* from = data + row * step + d;
    if (d + 8 <= size && reinterpret_cast<uintptr_t>(from) % sizeof(Eight) == 0)
      return *reinterpret_cast<const Eight*>(from);
    for (int i = 0; i < 8 && d + i < size; ++i) found.at[i] = from[i];
    return found;
  }
};

// `rows` rows of a head from `first` on, one after another, or as columns: element d of all rows, then the next.
template <int kSize>
__device__ void load_rows(const HeadRows& head, int64_t first, int64_t end, int rows, bf16* to) {
  for (int e = static_cast<int>(threadIdx.x); e < rows * kSize / 8; e += kThreads) {
    const int row = e / (kSize / 8), d = e % (kSize / 8) * 8;
    *reinterpret_cast<HeadRows::Eight*>(to + row * step_of(kSize) + d) = head.eight(first + row, end, d);
  }
}
template <int kSize>
__device__ void load_columns(const HeadRows& head, int64_t first, int64_t end, int rows, bf16* to) {
  for (int e = static_cast<int>(threadIdx.x); e < rows * kSize / 8; e += kThreads) {
    const int row = e % rows, d = e / rows * 8;
    const HeadRows::Eight found = head.eight(first + row, end, d);
    for (int i = 0; i < 8; ++i) to[(d + i) * step_of(rows) + row] = found.at[i];
  }
}

// sums += the warp's 16 rows of `a` times `columns` rows of `b`, each of kDepthOf elements.
template <int kDepthOf, int kColumns>
__device__ void multiply_rows(const bf16* a, const bf16* b, Sums (&sums)[kColumns / kColumnsOfWarp]) {
  constexpr int kStep = step_of(kDepthOf);
  const bf16* own = a + static_cast<int>(threadIdx.x) / 32 * 16 * kStep;
#pragma unroll
  for (int k = 0; k < kDepthOf; k += kDepth) {
    const FactorA rows = load_a(own, kStep, k);
#pragma unroll
    for (int j = 0; j < kColumns / kColumnsOfWarp; ++j)
      multiply_add(sums[j], rows, load_b(b + j * kColumnsOfWarp * kStep, kStep, k));
  }
}

// sums (16, kSize) += weights (16, kTerms), in registers, times the columns at `b`, of kTerms elements each.
template <int kTerms, int kSize>
__device__ void add_weighted(const Sums (&weights)[kTerms / kColumnsOfWarp], const bf16* b,
                             Sums (&sums)[kSize / kColumnsOfWarp]) {
  constexpr int kStep = step_of(kTerms);
#pragma unroll
  for (int k = 0; k < kTerms / kDepth; ++k) {
    const FactorA rows = as_factor(weights[2 * k], weights[2 * k + 1]);
#pragma unroll
    for (int d = 0; d < kSize / kColumnsOfWarp; ++d)
      multiply_add(sums[d], rows, load_b(b + d * kColumnsOfWarp * kStep, kStep, k * kDepth));
  }
}

// Where in a block's tile a thread's elements lie: at[2 r + c] of sums j is row(r), column(j, c).
__device__ int row_of(int r) { return static_cast<int>(threadIdx.x) / 32 * 16 + lane_group() + 8 * r; }
__device__ int column_of(int j, int c) { return j * kColumnsOfWarp + 2 * lane_in_group() + c; }

// Over the four lanes that share a row; all get the same.
__device__ float row_max(float x) {
  for (const int other : {1, 2}) {
    const float y = __shfl_xor_sync(kWholeWarp, x, other);
    x = x < y ? y : x;
  }
  return x;
}
__device__ float row_total(float x) {
  for (const int other : {1, 2}) x = x + __shfl_xor_sync(kWholeWarp, x, other);
  return x;
}

// Sums times a factor as rows of a head; those from `end` on, and elements beyond the head, are left out.
template <int kSize>
__device__ void store_rows(const Sums (&sums)[kSize / kColumnsOfWarp], const HeadsView& heads, int64_t b, int64_t h,
                           int64_t first, int64_t end, int64_t size, const float (&factor)[2]) {
  for (int r = 0; r < 2; ++r) {
    const int64_t row = first + row_of(r);
    if (row >= end) continue;
    bf16* to = heads.of<bf16>(b, h) + row * heads.time;
    const bool pairs = reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0;
#pragma unroll
    for (int j = 0; j < kSize / kColumnsOfWarp; ++j) {
      const uint32_t both = rounded_pair(sums[j].at[2 * r] * factor[r], sums[j].at[2 * r + 1] * factor[r]);
      const int64_t left = column_of(j, 0), right = column_of(j, 1);
      if (pairs && right < size) *reinterpret_cast<uint32_t*>(to + left) = both;
      else {
        if (left < size) to[left].bits = static_cast<uint16_t>(both);
        if (right < size) to[right].bits = static_cast<uint16_t>(both >> 16);
      }
    }
  }
}

// Where a block works: kRows rows of one head. The last rows, which see the most keys, come first.
struct Place {
  int64_t first, h, b;
  __device__ Place(int64_t time, int64_t heads) {
    const int64_t blocks = (time + kRows - 1) / kRows, head = int64_t{blockIdx.x} / blocks;
    first = (blocks - 1 - int64_t{blockIdx.x} % blocks) * kRows;
    h = head % heads;
    b = head / heads;
  }
};

__device__ int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <int kSize>
__global__ void __launch_bounds__(kThreads) fast_queries(AttentionArgs a, float scale) {
  constexpr int kKeys = 64;
  const AttentionShape& s = a.s;
  const Place at(s.tq, s.heads);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const HeadRows k(a.k, at.b, kv, s.size), v(a.v, at.b, kv, s.size);
  bf16* const q_rows = dynamic_shared<bf16>();
  bf16* const k_rows = q_rows + kRows * step_of(kSize);
  bf16* const v_columns = k_rows + kKeys * step_of(kSize);
  load_rows<kSize>(HeadRows(a.q, at.b, at.h, s.size), at.first, s.tq, kRows, q_rows);

  const float kNone = -std::numeric_limits<float>::infinity();
  Sums o[kSize / kColumnsOfWarp];
  float m[2] = {kNone, kNone}, l[2] = {0.0f, 0.0f};
  int64_t seen[2];
  for (int r = 0; r < 2; ++r) seen[r] = at.first + row_of(r) < s.tq ? s.visible(at.first + row_of(r)) : 0;
  const int64_t keys = s.visible(smaller(at.first + kRows, s.tq) - 1);
  for (int64_t k0 = 0; k0 < keys; k0 += kKeys) {
    __syncthreads();
    load_rows<kSize>(k, k0, s.tk, kKeys, k_rows);
    load_columns<kSize>(v, k0, s.tk, kKeys, v_columns);
    __syncthreads();
    Sums weights[kKeys / kColumnsOfWarp];
    multiply_rows<kSize, kKeys>(q_rows, k_rows, weights);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = m[r];
#pragma unroll
      for (int j = 0; j < kKeys / kColumnsOfWarp; ++j)
        for (int c = 0; c < 2; ++c) {
          float& x = weights[j].at[2 * r + c];
          x = k0 + column_of(j, c) < seen[r] ? x * scale : kNone;
          most = most < x ? x : most;
        }
      most = row_max(most);
      const float base = most == kNone ? 0.0f : most, shrink = exp2_of(m[r] - base);
      m[r] = most;
      l[r] = l[r] * shrink;
#pragma unroll
      for (int j = 0; j < kSize / kColumnsOfWarp; ++j)
        for (int c = 0; c < 2; ++c) o[j].at[2 * r + c] = o[j].at[2 * r + c] * shrink;
#pragma unroll
      for (int j = 0; j < kKeys / kColumnsOfWarp; ++j)
        for (int c = 0; c < 2; ++c) {
          float& x = weights[j].at[2 * r + c];
          x = k0 + column_of(j, c) < seen[r] ? exp2_of(x - base) : 0.0f;
          l[r] = l[r] + x;
        }
    }
    add_weighted<kKeys, kSize>(weights, v_columns, o);
  }
  float factor[2];
  for (int r = 0; r < 2; ++r) factor[r] = 1.0f / row_total(l[r]);
  store_rows<kSize>(o, a.o, at.b, at.h, at.first, s.tq, s.size, factor);
  for (int r = 0; r < 2; ++r) {
    const int64_t row = at.first + row_of(r);
    if (row >= s.tq || lane_in_group() != 0) continue;
    a.m.as<float>()[(at.b * s.heads + at.h) * s.tq + row] = m[r];
    a.r.as<float>()[(at.b * s.heads + at.h) * s.tq + row] = factor[r];
  }
}

// sum(do * o) of each query, a warp each.
__global__ void fast_query_dots(AttentionBackwardArgs a, float* dots) {
  const int64_t at = thread_of_grid() / 32;
  const AttentionShape& s = a.s;
  if (at >= s.batch * s.heads * s.tq) return;
  const int64_t t = at % s.tq, h = at / s.tq % s.heads, b = at / s.tq / s.heads;
  const bf16* d_o = a.d_o.of<bf16>(b, h) + t * a.d_o.time;
  const bf16* o = a.o.of<bf16>(b, h) + t * a.o.time;
  const float dot = warp_row_dot<float>(
      s.size, [&](int64_t d) { return static_cast<float>(d_o[d]); },
      [&](int64_t d) { return static_cast<float>(o[d]); });
  if (threadIdx.x % 32 == 0) dots[at] = dot;
}

// Scores and products of gradients and values become p, and ds but for the factor `scale`.
__device__ void gradient_of_score(float& score, float& product, bool seen, float scale, float m, float r, float dot) {
  const float p = seen ? exp2_of(score * scale - m) * r : 0.0f;
  product = seen ? p * (product - dot) : 0.0f;
  score = p;
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    fast_query_gradients(AttentionBackwardArgs a, const float* dots, float scale) {
  constexpr int kKeys = 64;
  const AttentionShape& s = a.s;
  const Place at(s.tq, s.heads);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const HeadRows k(a.k, at.b, kv, s.size), v(a.v, at.b, kv, s.size);
  bf16* const q_rows = dynamic_shared<bf16>();
  bf16* const d_o_rows = q_rows + kRows * step_of(kSize);
  bf16* const k_rows = d_o_rows + kRows * step_of(kSize);
  bf16* const v_rows = k_rows + kKeys * step_of(kSize);
  bf16* const k_columns = v_rows + kKeys * step_of(kSize);
  load_rows<kSize>(HeadRows(a.q, at.b, at.h, s.size), at.first, s.tq, kRows, q_rows);
  load_rows<kSize>(HeadRows(a.d_o, at.b, at.h, s.size), at.first, s.tq, kRows, d_o_rows);

  Sums dq[kSize / kColumnsOfWarp];
  int64_t seen[2];
  float m[2] = {}, r_of[2] = {}, dot[2] = {};
  for (int r = 0; r < 2; ++r) {
    const int64_t row = at.first + row_of(r), place = (at.b * s.heads + at.h) * s.tq + row;
    seen[r] = row < s.tq ? s.visible(row) : 0;
    if (row >= s.tq) continue;
    m[r] = a.m.as<float>()[place];
    r_of[r] = a.r.as<float>()[place];
    dot[r] = dots[place];
  }
  const int64_t keys = s.visible(smaller(at.first + kRows, s.tq) - 1);
  for (int64_t k0 = 0; k0 < keys; k0 += kKeys) {
    __syncthreads();
    load_rows<kSize>(k, k0, s.tk, kKeys, k_rows);
    load_rows<kSize>(v, k0, s.tk, kKeys, v_rows);
    load_columns<kSize>(k, k0, s.tk, kKeys, k_columns);
    __syncthreads();
    Sums p[kKeys / kColumnsOfWarp], ds[kKeys / kColumnsOfWarp];
    multiply_rows<kSize, kKeys>(q_rows, k_rows, p);
    multiply_rows<kSize, kKeys>(d_o_rows, v_rows, ds);
#pragma unroll
    for (int j = 0; j < kKeys / kColumnsOfWarp; ++j)
      for (int e = 0; e < 4; ++e)
        gradient_of_score(p[j].at[e], ds[j].at[e], k0 + column_of(j, e % 2) < seen[e / 2], scale, m[e / 2], r_of[e / 2],
                          dot[e / 2]);
    add_weighted<kKeys, kSize>(ds, k_columns, dq);
  }
  const auto plain = static_cast<float>(s.scale);
  store_rows<kSize>(dq, a.dq, at.b, at.h, at.first, s.tq, s.size, {plain, plain});
}

// Queries of a tile of fast_key_gradients, which keeps two gradients in registers.
template <int kSize>
constexpr int kQueries = kSize > 64 ? 32 : 64;

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    fast_key_gradients(AttentionBackwardArgs a, const float* dots, float scale) {
  constexpr int kTile = kQueries<kSize>;
  const AttentionShape& s = a.s;
  const Place at(s.tk, s.kv_heads);
  const int64_t shared = s.heads / s.kv_heads;
  bf16* const k_rows = dynamic_shared<bf16>();
  bf16* const v_rows = k_rows + kRows * step_of(kSize);
  bf16* const q_rows = v_rows + kRows * step_of(kSize);
  bf16* const d_o_rows = q_rows + kTile * step_of(kSize);
  bf16* const q_columns = d_o_rows + kTile * step_of(kSize);
  bf16* const d_o_columns = q_columns + kSize * step_of(kTile);
  __shared__ float m[kTile], r_of[kTile], dot[kTile];
  load_rows<kSize>(HeadRows(a.k, at.b, at.h, s.size), at.first, s.tk, kRows, k_rows);
  load_rows<kSize>(HeadRows(a.v, at.b, at.h, s.size), at.first, s.tk, kRows, v_rows);

  Sums dk[kSize / kColumnsOfWarp], dv[kSize / kColumnsOfWarp];
  // The first query that sees one of these keys.
  const int64_t earliest = s.causal ? at.first - (s.tk - s.tq) : 0;
  const int64_t begin = earliest > 0 ? earliest / kTile * kTile : 0;
  for (int64_t h = at.h * shared; h < (at.h + 1) * shared; ++h) {
    const HeadRows q(a.q, at.b, h, s.size), d_o(a.d_o, at.b, h, s.size);
    const int64_t places = (at.b * s.heads + h) * s.tq;
    for (int64_t q0 = begin; q0 < s.tq; q0 += kTile) {
      __syncthreads();
      load_rows<kSize>(q, q0, s.tq, kTile, q_rows);
      load_rows<kSize>(d_o, q0, s.tq, kTile, d_o_rows);
      load_columns<kSize>(q, q0, s.tq, kTile, q_columns);
      load_columns<kSize>(d_o, q0, s.tq, kTile, d_o_columns);
      for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kThreads) {
        const bool there = q0 + i < s.tq;
        m[i] = there ? a.m.as<float>()[places + q0 + i] : 0.0f;
        r_of[i] = there ? a.r.as<float>()[places + q0 + i] : 0.0f;
        dot[i] = there ? dots[places + q0 + i] : 0.0f;
      }
      __syncthreads();
      Sums p[kTile / kColumnsOfWarp], ds[kTile / kColumnsOfWarp];
      multiply_rows<kSize, kTile>(k_rows, q_rows, p);
      multiply_rows<kSize, kTile>(v_rows, d_o_rows, ds);
#pragma unroll
      for (int j = 0; j < kTile / kColumnsOfWarp; ++j)
        for (int e = 0; e < 4; ++e) {
          const int i = column_of(j, e % 2);
          const bool seen = q0 + i < s.tq && at.first + row_of(e / 2) < s.visible(q0 + i);
          gradient_of_score(p[j].at[e], ds[j].at[e], seen, scale, m[i], r_of[i], dot[i]);
        }
      add_weighted<kTile, kSize>(p, d_o_columns, dv);
      add_weighted<kTile, kSize>(ds, q_columns, dk);
    }
  }
  const auto plain = static_cast<float>(s.scale);
  store_rows<kSize>(dk, a.dk, at.b, at.h, at.first, s.tk, s.size, {plain, plain});
  store_rows<kSize>(dv, a.dv, at.b, at.h, at.first, s.tk, s.size, {1.0f, 1.0f});
}

// f with the size to which heads are padded, as a constant.
template <class F>
void with_padded(int64_t size, F f) {
  invariant(size <= kMostFastHead, "a head that fast attention does not take");
  if (size <= 32) f(std::integral_constant<int, 32>());
  else if (size <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

int64_t blocks_of(int64_t heads, int64_t time) { return heads * ((time + kRows - 1) / kRows); }

// Of so many rows of `row` elements.
size_t bytes_of(int rows, int row) { return static_cast<size_t>(rows * step_of(row)) * sizeof(bf16); }

// From scores to exponents of two.
float base_two(const AttentionShape& s) { return static_cast<float>(s.scale * kLog2E); }

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void fast_attention(Gpu& stream, const AttentionArgs& a) {
  using namespace HWY_NAMESPACE;
  with_padded(a.s.size, [&](auto size) {
    constexpr int kSize = size();
    launch(stream, "fast_attention",
           {.blocks = blocks_of(a.s.batch * a.s.heads, a.s.tq),
            .threads = kThreads,
            .shared = bytes_of(2 * kRows, kSize) + bytes_of(kSize, 64)},
           fast_queries<kSize>, a, base_two(a.s));
  });
}

template <>
void fast_attention_backward(Gpu& stream, const AttentionBackwardArgs& a) {
  using namespace HWY_NAMESPACE;
  const int64_t queries = a.s.batch * a.s.heads * a.s.tq;
  const DeviceScratch<float> dots(stream, queries);
  launch(stream, "fast_attention_query_dots", {.blocks = warp_blocks(queries)}, fast_query_dots, a, dots.data());
  with_padded(a.s.size, [&](auto size) {
    constexpr int kSize = size(), kTile = kQueries<kSize>;
    launch(stream, "fast_attention_query_gradients",
           {.blocks = blocks_of(a.s.batch * a.s.heads, a.s.tq),
            .threads = kThreads,
            .shared = bytes_of(2 * kRows + 2 * 64, kSize) + bytes_of(kSize, 64)},
           fast_query_gradients<kSize>, a, dots.data(), base_two(a.s));
    launch(stream, "fast_attention_key_gradients",
           {.blocks = blocks_of(a.s.batch * a.s.kv_heads, a.s.tk),
            .threads = kThreads,
            .shared = bytes_of(2 * kRows + 2 * kTile, kSize) + bytes_of(2 * kSize, kTile)},
           fast_key_gradients<kSize>, a, dots.data(), base_two(a.s));
  });
}

}  // namespace elinvar
