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

template <class T>
struct MomentsTree {
  struct Node {
    float mean, m2;
    int64_t rows;
  };
  static constexpr int kLeavesOfThread = 1;
  const T* x;
  float *mean, *var;
  int64_t rows, channels;

  // at(r) is row r of n.
  template <class Rows, class At>
  __device__ static Node moments(Rows n, At at) {
    const V count{static_cast<float>(n)};
    V sum{0.0f}, m2{0.0f};
#pragma unroll
    for (int r = 0; r < n; ++r) sum = sum + V{at(r)};
    const V m = sum / count;
#pragma unroll
    for (int r = 0; r < n; ++r) {
      const V d = V{at(r)} - m;
      m2 = fma(d, d, m2);
    }
    return {m.v, m2.v, n};
  }

  __device__ Node leaf(int64_t i, int64_t c) const {
    const Reads<T> first{x + i * kColumnLeaf * channels + c};
    const int64_t n = rows_of_leaf(i, rows);
    if (n < kColumnLeaf) return moments(static_cast<int>(n), [&](int r) { return first[r * channels]; });
    float held[kColumnLeaf];  // in registers, so that memory is read once
#pragma unroll
    for (int r = 0; r < kColumnLeaf; ++r) held[r] = first[r * channels];
    return moments(std::integral_constant<int, kColumnLeaf>(), [&](int r) { return held[r]; });
  }
  __device__ void operator()(Node& a, const Node& b) const {
    V m{a.mean}, m2{a.m2};
    merge_moments<float>(m, m2, static_cast<float>(a.rows), V{b.mean}, V{b.m2}, static_cast<float>(b.rows));
    a = {m.v, m2.v, a.rows + b.rows};
  }
  __device__ void store(int64_t c, const Node& root) const {
    mean[c] = root.mean;
    var[c] = root.m2 / static_cast<float>(rows);
  }
};

template <class T, ReluMask kMask>
struct GradientTree {
  struct Node {
    float g, gx;
  };
  static constexpr int kLeavesOfThread = 1;
  BatchNormSumsArgs a;

  __device__ Node leaf(int64_t i, int64_t c) const {
    constexpr int kAtOnce = 8;  // rows whose loads overlap
    const int64_t first = i * kColumnLeaf, n = rows_of_leaf(i, a.rows), at = first * a.channels + c;
    const Reads<T> dy{a.dy.as<T>() + at}, x{a.x.as<T>() + at},
        y{kMask == ReluMask::from_y ? a.y.as<T>() + at : nullptr};
    const auto* bits = a.y.as<uint8_t>();
    T* write = a.g.data ? a.g.as<T>() + at : nullptr;
    const V mean{a.mean.as<float>()[c]}, inv{a.inv.as<float>()[c]}, va{a.a.as<float>()[c]}, vb{a.b.as<float>()[c]};
    V sum{0.0f}, sum_x{0.0f};
    for (int64_t r = 0; r < n; r += kAtOnce) {
      V vdy[kAtOnce], vx[kAtOnce], vy[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t row = (r + k < n ? r + k : n - 1) * a.channels;
        vdy[k] = {dy[row]};
        vx[k] = {x[row]};
        if constexpr (kMask == ReluMask::from_bits) vy[k] = passed<V>(bits, at + row);
        else vy[k] = kMask == ReluMask::from_y ? V{y[row]} : vx[k];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (r + k >= n) break;
        const V g = masked<kMask>(vdy[k], vx[k], vy[k], va, vb);
        if (write) write[(r + k) * a.channels] = stored<T>(g.v);
        sum = sum + g;
        sum_x = fma(g, (vx[k] - mean) * inv, sum_x);
      }
    }
    return {sum.v, sum_x.v};
  }
  __device__ void operator()(Node& left, const Node& right) const { left = {left.g + right.g, left.gx + right.gx}; }
  __device__ void store(int64_t c, const Node& root) const {
    a.sum_g.as<float>()[c] = 0.0f + root.g;
    a.sum_gx.as<float>()[c] = 0.0f + root.gx;
  }
};

int64_t leaves_of(int64_t rows) { return (rows + kColumnLeaf - 1) / kColumnLeaf; }

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void batch_statistics(Gpu& stream, const BatchStatisticsArgs& a) {
  using namespace HWY_NAMESPACE;
  visit_activation(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    leaf_tree(stream, "batch_statistics",
              MomentsTree<T>{a.x.as<T>(), a.mean.as<float>(), a.var.as<float>(), a.rows, a.channels}, leaves_of(a.rows),
              a.channels);
  });
}

template <>
void batch_norm_sums(Gpu& stream, const BatchNormSumsArgs& a) {
  using namespace HWY_NAMESPACE;
  const auto with = [&]<ReluMask kMask>() {
    const auto of_type = [&](auto zero) {
      leaf_tree(stream, "batch_norm_sums", GradientTree<decltype(zero), kMask>{a}, leaves_of(a.rows), a.channels);
    };
    if constexpr (kMask == ReluMask::from_bits) of_type(float{});
    else visit_activation(a.x.dtype, of_type);
  };
  if (a.mask == ReluMask::from_x) with.template operator()<ReluMask::from_x>();
  else if (a.mask == ReluMask::from_y) with.template operator()<ReluMask::from_y>();
  else if (a.mask == ReluMask::from_bits) with.template operator()<ReluMask::from_bits>();
  else with.template operator()<ReluMask::none>();
}

}  // namespace elinvar
