#pragma once
// Sums along columns (NUMERICS.md, rule 12): gradients of biases, and every reduction that keeps the innermost
// dimension.
#include "tensor/numerics.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// Rows that one task sums: a whole subtree of rule 12's tree, so the split changes no bit.
inline constexpr int64_t kColumnRange = 16 * kColumnLeaf;

// sum[o, c] = (sum over r of x[o, r, c]) / divisor
struct ColumnSumArgs {
  In x;         // (outer, rows, cols)
  Out sum;      // (outer, cols)
  Out partial;  // (outer, ceil(rows / kColumnRange), cols) workspace; unused if the rows are one range
  int64_t outer, rows, cols;
  double divisor = 1.0;
};
void column_sum(CpuStream&, const ColumnSumArgs&);
template <class B>
void column_sum(GpuStream<B>&, const ColumnSumArgs&);

// x (outer, rows, cols) -> (outer, cols), float32 if x is bfloat16
Tensor column_sum(const Tensor& x, double divisor = 1.0);

// Completes sums from their chains: partial (leaves, cols), from a kernel that fuses a column sum with other work, ->
// sum (cols), by the tree of rule 12.
struct ColumnTreeArgs {
  In partial;
  Out sum;
  int64_t leaves, cols;
};
void column_tree(CpuStream&, const ColumnTreeArgs&);
template <class B>
void column_tree(GpuStream<B>&, const ColumnTreeArgs&);

}  // namespace elinvar
