#pragma once
// Sums, and sums of products, along contiguous rows (NUMERICS.md, rule 11).
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// sum[r] = (sum over c of x[r, c]) / divisor, or of fma(x[r, c], factor[r, c], acc) if `factor` is given.
struct RowSumArgs {
  In x, factor;  // (rows, cols)
  Out sum;       // (rows)
  Out partial;   // (rows, ceil(cols / kRowSegment)) workspace; unused if a row is one segment
  int64_t rows, cols;
  double divisor = 1.0;
};
void row_sum(CpuStream&, const RowSumArgs&);
template <class B>
void row_sum(GpuStream<B>&, const RowSumArgs&);

// x (rows, cols) contiguous -> (rows)
Tensor row_sum(const Tensor& x, double divisor = 1.0);

// Returns the sum of a[i] * b[i] over all elements in row-major order, taken as one row: ().
Tensor dot(const Tensor& a, const Tensor& b);

}  // namespace elinvar
