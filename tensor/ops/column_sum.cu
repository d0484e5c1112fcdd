#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/leaf_tree.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/copy.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// The columns of x (outer, rows, cols) are outer * cols; a leaf is a chain of kColumnLeaf rows.
template <class T>
struct RowsTree {
  using Node = float;
  static constexpr int kLeavesOfThread = 1;
  const T* x;
  float* sum;
  int64_t rows, cols;
  float divisor;

  __device__ float leaf(int64_t i, int64_t column) const {
    const int64_t outer = column / cols, first = i * kColumnLeaf;
    const Reads<T> at{x + (outer * rows + first) * cols + (column - outer * cols)};
    const int64_t n = rows - first < kColumnLeaf ? rows - first : kColumnLeaf;
    return column_chain<float>(n, [&](float acc, int64_t k) { return acc + at[k * cols]; });
  }
  __device__ void operator()(float& a, float b) const { a = a + b; }
  __device__ void store(int64_t column, float root) const { sum[column] = (0.0f + root) / divisor; }
};

// A tree over rows that are leaves already.
struct PartialsTree {
  using Node = float;
  static constexpr int kLeavesOfThread = 16;
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
  visit_activation(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    HWY_NAMESPACE::leaf_tree(
        stream, "column_sum",
        HWY_NAMESPACE::RowsTree<T>{a.x.as<T>(), a.sum.as<float>(), a.rows, a.cols, static_cast<float>(a.divisor)},
        (a.rows + kColumnLeaf - 1) / kColumnLeaf, a.outer * a.cols);
  });
}

template <>
void column_tree(Gpu& stream, const ColumnTreeArgs& a) {
  if (a.leaves == 0) return fill(stream, FillArgs{{a.sum.data, DType::f32}, Shape{a.cols}, Shape{1}, 0.0});
  HWY_NAMESPACE::leaf_tree(stream, "column_tree",
                           HWY_NAMESPACE::PartialsTree{a.partial.as<float>(), a.sum.as<float>(), a.cols}, a.leaves,
                           a.cols);
}

}  // namespace elinvar
