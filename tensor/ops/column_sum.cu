#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/leaf_tree.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/copy.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// The columns of x (outer, rows, cols) are outer * cols, or half as many pairs; a leaf is a chain of kColumnLeaf rows.
template <class T, int kCount>
struct RowsTree {
  struct Node {
    float sum[kCount];
  };
  static constexpr bool kLong = true;
  static constexpr int kBlocks = 4;
  const T* x;
  float* sum;
  int64_t rows, cols;
  float divisor;

  __device__ Node leaf(int64_t i, int64_t column) const {
    const int64_t stride = cols / kCount, outer = column / stride, first = i * kColumnLeaf;
    const Some<T, kCount>* at = pieces_of<kCount>(x) + (outer * rows + first) * stride + (column - outer * stride);
    const int64_t n = rows - first < kColumnLeaf ? rows - first : kColumnLeaf;
    Node node{};
#pragma unroll 16
    for (int64_t k = 0; k < n; ++k) {
      const Some<T, kCount> row = at[k * stride];
#pragma unroll
      for (int e = 0; e < kCount; ++e) node.sum[e] = node.sum[e] + row.at(e);
    }
    return node;
  }
  __device__ void operator()(Node& a, const Node& b) const {
#pragma unroll
    for (int e = 0; e < kCount; ++e) a.sum[e] = a.sum[e] + b.sum[e];
  }
  __device__ void store(int64_t column, const Node& root) const {
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[column * kCount + e] = (0.0f + root.sum[e]) / divisor;
  }
};

// A tree over rows that are leaves already.
struct PartialsTree {
  using Node = float;
  static constexpr bool kLong = false;
  static constexpr int kBlocks = 1;
  const float* partial;
  float* sum;
  int64_t cols;

  __device__ float leaf(int64_t i, int64_t column) const { return 0.0f + partial[i * cols + column]; }
  __device__ void operator()(float& a, float b) const { a = a + b; }
  __device__ void store(int64_t column, float root) const { sum[column] = 0.0f + root; }
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void column_sum(Gpu& stream, const ColumnSumArgs& a) {
  if (a.rows == 0) return fill(stream, FillArgs{{a.sum.data, DType::f32}, Shape{a.outer * a.cols}, Shape{1}, 0.0});
  using namespace HWY_NAMESPACE;
  visit_pairs(
      a.cols, a.x.dtype,
      [&]<class T, int kCount>() {
        leaf_tree(stream, "column_sum",
                  RowsTree<T, kCount>{a.x.as<T>(), a.sum.as<float>(), a.rows, a.cols, static_cast<float>(a.divisor)},
                  (a.rows + kColumnLeaf - 1) / kColumnLeaf, a.outer * a.cols / kCount);
      },
      a.x);
}

template <>
void column_tree(Gpu& stream, const ColumnTreeArgs& a) {
  if (a.leaves == 0) return fill(stream, FillArgs{{a.sum.data, DType::f32}, Shape{a.cols}, Shape{1}, 0.0});
  HWY_NAMESPACE::leaf_tree(stream, "column_tree",
                           HWY_NAMESPACE::PartialsTree{a.partial.as<float>(), a.sum.as<float>(), a.cols}, a.leaves,
                           a.cols);
}

}  // namespace elinvar
