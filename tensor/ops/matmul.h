#pragma once
// Matrix products in canonical order (NUMERICS.md, rule 8), with an optional bias added with a rounding of its own
// (rule 9), or exactly (NUMERICS.md, "Exact numerics"). The other precisions run on a GPU's tensor cores.
#include "tensor/precision.h"
#include "tensor/quantized.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// Matrices of a batch: element (i, j) is at data[i * row + j * col], and consecutive matrices are `batch` elements
// apart.
struct MatrixIn {
  const void* data;
  int64_t row, col, batch;
};

// C[b] (m, n) = A[b] (m, k) x B[b] (k, n) + bias (n) in every row. C is row-major with rows `c_row` apart.
struct MatmulArgs {
  DType dtype;  // of all operands; of fast products only the factors'
  int64_t batch, m, n, k;
  MatrixIn a, b;
  void* c;
  int64_t c_row, c_batch;
  const void* bias = nullptr;
  DType result = DType::f32;  // of fast products: the type of C and the bias
  Exponents exponents = {};   // of exact products, whose factors are pairs: k counts pairs
};
void matmul(CpuStream&, const MatmulArgs&);
void exact_matmul(CpuStream&, const MatmulArgs&);
template <class B>
void matmul(GpuStream<B>&, const MatmulArgs&);
template <class B>
void exact_matmul(GpuStream<B>&, const MatmulArgs&);

// (.., m, k) x (.., k, n) -> (.., m, n); leading dimensions broadcast. Transposed views are multiplied in place. bias
// (n), if defined, is added to every row. With precision bf16, factors may be bfloat16, or are rounded to it, and the
// result has the type `result`, float32 or bfloat16. For a bfloat16 result the float32 bias is rounded to bfloat16
// first, then its sum with the product is. Other products have results of their factors' type.
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias = {}, Precision precision = Precision::portable,
              DType result = DType::f32);

// The exact product of factors with one position (tensor/quantized.h): C (i, j) sums over the channels or the rows of
// which each factor has pairs; i and j are the other extent of a and of b. If a has pairs of rows, b has, too: no
// product of a network needs anything else. `bias` (j) is added with a rounding of its own.
Tensor exact_matmul(const Quantized& a, const Quantized& b, const Tensor& bias = {});

}  // namespace elinvar
