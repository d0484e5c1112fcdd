#pragma once
// Matrix products in canonical order (NUMERICS.md, rule 8), with an optional bias added as a rounding of its own
// (rule 9).
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// One matrix of a batch: element (i, j) at data[i * row + j * col]; the next of the batch `batch` elements on.
struct MatrixIn {
  const void* data;
  int64_t row, col, batch;
};

// C[b] (m, n) = A[b] (m, k) x B[b] (k, n) + bias (n) in every row. C is row-major with rows `c_row` apart.
struct MatmulArgs {
  DType dtype;
  int64_t batch, m, n, k;
  MatrixIn a, b;
  void* c;
  int64_t c_row, c_batch;
  const void* bias = nullptr;
};
void matmul(CpuStream&, const MatmulArgs&);
template <class B>
void matmul(GpuStream<B>&, const MatmulArgs&);

// (.., m, k) x (.., k, n) -> (.., m, n); leading dimensions broadcast. Transposed views are multiplied in place.
// bias (n), if defined, is added to every row.
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias = {});

}  // namespace elinvar
