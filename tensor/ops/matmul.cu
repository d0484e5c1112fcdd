#include "tensor/cuda/kernel.h"

#include "tensor/cuda/product.h"
#include "tensor/ops/matmul.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

template <bool kAlongKOfA, bool kAlongKOfB>
struct Matrices {
  int m, n, k, batch;
  MatrixOperand<kAlongKOfA> a;
  MatrixOperand<kAlongKOfB> b;
  float* c;
  int64_t c_row, c_batch;
  const float* added;

  explicit Matrices(const MatmulArgs& args)
      : m(static_cast<int>(args.m)),
        n(static_cast<int>(args.n)),
        k(static_cast<int>(args.k)),
        batch(static_cast<int>(args.batch)),
        a{static_cast<const float*>(args.a.data), args.a.row, args.a.col, args.a.batch},
        b{static_cast<const float*>(args.b.data), args.b.col, args.b.row, args.b.batch},
        c(static_cast<float*>(args.c)),
        c_row(args.c_row),
        c_batch(args.c_batch),
        added(static_cast<const float*>(args.bias)) {}

  bool in_fours() const { return a.in_fours(m, k) && b.in_fours(n, k); }
  bool fours_of_c() const { return c_row % 4 == 0 && c_batch % 4 == 0 && reinterpret_cast<uintptr_t>(c) % 16 == 0; }
  __device__ SkipNothing skip(int) const { return {}; }
  __device__ float* row(int of_batch, int i) const { return c + of_batch * c_batch + i * c_row; }
  __device__ const float* bias(int) const { return added; }
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void matmul(Gpu& stream, const MatmulArgs& a) {
  using namespace HWY_NAMESPACE;
  check_extents("matmul", {a.batch, a.m, a.n, a.k});
  const bool a_along_k = a.a.col == 1, b_along_k = a.b.row == 1 && a.b.col != 1;
  if (a_along_k && b_along_k) multiply(stream, "matmul", Matrices<true, true>(a));
  else if (a_along_k) multiply(stream, "matmul", Matrices<true, false>(a));
  else if (b_along_k) multiply(stream, "matmul", Matrices<false, true>(a));
  else multiply(stream, "matmul", Matrices<false, false>(a));
}

}  // namespace elinvar
