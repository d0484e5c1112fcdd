#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/leaf_tree.h"
#include "tensor/ops/batch_norm-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

__device__ int64_t rows_of_leaf(int64_t i, int64_t rows) {
  const int64_t rest = rows - i * kColumnLeaf;
  return rest < kColumnLeaf ? rest : kColumnLeaf;
}

// Element e of a piece. A pair of bfloat16 elements is widened by other instructions than those of at(): if both passes
// over a leaf had the same ones, ptxas would keep their results in between, and a pair would take three registers.
template <class T, int kCount>
__device__ float widened_again(const Some<T, kCount>& piece, int e) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, bf16> && kCount % 2 == 0)
    return std::bit_cast<float>(__byte_perm(piece.pair[e / 2], 0, e % 2 == 0 ? 0x1044 : 0x3244));
#endif
  return piece.at(e);
}

// The trees of columns of kCount adjacent channels.

template <class T, int kCount>
struct MomentsTree {
  using Piece = Some<T, kCount>;
  struct Node {
    float mean[kCount], m2[kCount];
    int64_t rows;
  };
  static constexpr bool kLong = true;
  static constexpr int kBlocks = 2;  // so that a leaf is in registers
  BatchStatisticsArgs a;

  // at(r) is row r of n.
  template <class Rows, class At>
  __device__ static Node moments(Rows n, At at) {
    const V count{static_cast<float>(n)};
    Node node{.mean = {}, .m2 = {}, .rows = n};
#pragma unroll
    for (int r = 0; r < n; ++r) {
      const Piece row = at(r);
#pragma unroll
      for (int e = 0; e < kCount; ++e) node.mean[e] = (V{node.mean[e]} + V{row.at(e)}).v;
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) node.mean[e] = (V{node.mean[e]} / count).v;
#pragma unroll
    for (int r = 0; r < n; ++r) {
      const Piece row = at(r);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const V d = V{widened_again(row, e)} - V{node.mean[e]};
        node.m2[e] = fma(d, d, V{node.m2[e]}).v;
      }
    }
    return node;
  }

  __device__ Node leaf(int64_t i, int64_t c) const {
    const int64_t stride = a.channels / kCount, n = rows_of_leaf(i, a.rows);
    const Piece* first = pieces_of<kCount>(a.x.as<T>()) + i * kColumnLeaf * stride + c;
    if (n < kColumnLeaf) return moments(static_cast<int>(n), [&](int r) { return first[r * stride]; });
    Piece held[kColumnLeaf];  // in registers, so that memory is read once
#pragma unroll
    for (int r = 0; r < kColumnLeaf; ++r) held[r] = first[r * stride];
    return moments(std::integral_constant<int, kColumnLeaf>(), [&](int r) { return held[r]; });
  }
  __device__ void operator()(Node& left, const Node& right) const {
    const auto rows = static_cast<float>(left.rows), rows_right = static_cast<float>(right.rows);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      V m{left.mean[e]}, m2{left.m2[e]};
      merge_moments<float>(m, m2, rows, V{right.mean[e]}, V{right.m2[e]}, rows_right);
      left.mean[e] = m.v;
      left.m2[e] = m2.v;
    }
    left.rows += right.rows;
  }
  __device__ void store(int64_t c, const Node& root) const {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const int64_t channel = c * kCount + e;
      const V mean{root.mean[e]}, var{root.m2[e] / static_cast<float>(a.rows)};
      a.mean.as<float>()[channel] = mean.v;
      a.var.as<float>()[channel] = var.v;
      if (!a.inv.data) continue;
      const auto f = factors_of(mean, var, V{a.gamma.as<float>()[channel]}, V{a.beta.as<float>()[channel]},
                                V{static_cast<float>(a.eps)});
      a.inv.as<float>()[channel] = f.inv.v;
      a.a.as<float>()[channel] = f.a.v;
      a.b.as<float>()[channel] = f.b.v;
    }
  }
};

template <class T, ReluMask kMask, int kCount>
struct GradientTree {
  using Piece = Some<T, kCount>;
  struct Node {
    float g[kCount], gx[kCount];
  };
  static constexpr bool kLong = true;
  static constexpr int kAtOnce = kMask == ReluMask::none || kMask == ReluMask::from_x ? 16 : 8;  // rows: loads overlap
  static constexpr int kBlocks = 2;
  BatchNormSumsArgs a;

  __device__ Node leaf(int64_t i, int64_t c) const {
    const int64_t stride = a.channels / kCount, n = rows_of_leaf(i, a.rows), at = i * kColumnLeaf * stride + c;
    const Piece *dy = pieces_of<kCount>(a.dy.as<T>()) + at, *x = pieces_of<kCount>(a.x.as<T>()) + at,
                *y = kMask == ReluMask::from_y ? pieces_of<kCount>(a.y.as<T>()) + at : nullptr;
    Piece* write = a.g.data ? pieces_of<kCount>(a.g.as<T>()) + at : nullptr;
    V mean[kCount], inv[kCount], va[kCount], vb[kCount];
    Node node{};
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const int64_t channel = c * kCount + e;
      mean[e] = {a.mean.as<float>()[channel]};
      inv[e] = {a.inv.as<float>()[channel]};
      va[e] = {a.a.as<float>()[channel]};
      vb[e] = {a.b.as<float>()[channel]};
    }
    for (int64_t r = 0; r < n; r += kAtOnce) {
      Piece of_dy[kAtOnce], of_x[kAtOnce], of_y[kAtOnce];
      [[maybe_unused]] V bit[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t row = (r + k < n ? r + k : n - 1) * stride;
        of_dy[k] = dy[row];
        of_x[k] = x[row];
        if constexpr (kMask == ReluMask::from_y) of_y[k] = y[row];
        if constexpr (kMask == ReluMask::from_bits) bit[k] = passed<V>(a.y.as<uint8_t>(), at + row);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (r + k >= n) break;
        const Piece of_g = Piece::of([&](int e) {
          const V vx{of_x[k].at(e)};
          V vy = vx;
          if constexpr (kMask == ReluMask::from_y) vy = {of_y[k].at(e)};
          if constexpr (kMask == ReluMask::from_bits) vy = bit[k];
          const V g = masked<kMask>(V{of_dy[k].at(e)}, vx, vy, va[e], vb[e]);
          node.g[e] = (V{node.g[e]} + g).v;
          node.gx[e] = fma(g, (vx - mean[e]) * inv[e], V{node.gx[e]}).v;
          return g.v;
        });
        if (write) write[(r + k) * stride] = of_g;
      }
    }
    return node;
  }
  __device__ void operator()(Node& left, const Node& right) const {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      left.g[e] = left.g[e] + right.g[e];
      left.gx[e] = left.gx[e] + right.gx[e];
    }
  }
  __device__ void store(int64_t c, const Node& root) const {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      a.sum_g.as<float>()[c * kCount + e] = 0.0f + root.g[e];
      a.sum_gx.as<float>()[c * kCount + e] = 0.0f + root.gx[e];
    }
  }
};

int64_t leaves_of(int64_t rows) { return (rows + kColumnLeaf - 1) / kColumnLeaf; }

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void batch_statistics(Gpu& stream, const BatchStatisticsArgs& a) {
  using namespace HWY_NAMESPACE;
  visit_pairs(
      a.channels, a.x.dtype,
      [&]<class T, int kCount>() {
        leaf_tree(stream, "batch_statistics", MomentsTree<T, kCount>{a}, leaves_of(a.rows), a.channels / kCount);
      },
      a.x);
}

template <>
void batch_norm_sums(Gpu& stream, const BatchNormSumsArgs& a) {
  using namespace HWY_NAMESPACE;
  const auto with = [&]<ReluMask kMask, class T, int kCount>() {
    leaf_tree(stream, "batch_norm_sums", GradientTree<T, kMask, kCount>{a}, leaves_of(a.rows), a.channels / kCount);
  };
  if (a.mask == ReluMask::from_bits) return with.template operator()<ReluMask::from_bits, float, 1>();
  const auto of_pairs = [&]<class T, int kCount>() {
    if (a.mask == ReluMask::from_x) with.template operator()<ReluMask::from_x, T, kCount>();
    else if (a.mask == ReluMask::from_y) with.template operator()<ReluMask::from_y, T, kCount>();
    else with.template operator()<ReluMask::none, T, kCount>();
  };
  visit_pairs(a.channels, a.x.dtype, of_pairs, a.dy, a.x, a.y, a.g);
}

}  // namespace elinvar
