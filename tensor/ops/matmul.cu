#include "tensor/cuda/kernel.h"

#include "tensor/cuda/product.h"
#include "tensor/ops/matmul.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

template <bool kAlongKOfA, bool kAlongKOfB>
struct Matrices {
  static constexpr bool kAAlongK = kAlongKOfA, kBAlongK = kAlongKOfB;
  int64_t m, n, k, batch;
  MatrixIn a_in, b_in;
  float* c;
  int64_t c_row, c_batch;
  const float* bias;

  explicit Matrices(const MatmulArgs& args)
      : m(args.m),
        n(args.n),
        k(args.k),
        batch(args.batch),
        a_in(args.a),
        b_in(args.b),
        c(static_cast<float*>(args.c)),
        c_row(args.c_row),
        c_batch(args.c_batch),
        bias(static_cast<const float*>(args.bias)) {}

  __device__ float a(int64_t b, int64_t i, int64_t at) const {
    return static_cast<const float*>(a_in.data)[b * a_in.batch + i * a_in.row + at * a_in.col];
  }
  __device__ float b(int64_t b, int64_t at, int64_t j) const {
    return static_cast<const float*>(b_in.data)[b * b_in.batch + at * b_in.row + j * b_in.col];
  }
  __device__ void store(int64_t b, int64_t i, int64_t j, float sum) const {
    c[b * c_batch + i * c_row + j] = bias ? sum + bias[j] : sum;
  }
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void matmul(Gpu& stream, const MatmulArgs& a) {
  using namespace HWY_NAMESPACE;
  const bool a_along_k = a.a.col == 1, b_along_k = a.b.row == 1 && a.b.col != 1;
  if (a_along_k && b_along_k) multiply(stream, "matmul", Matrices<true, true>(a));
  else if (a_along_k) multiply(stream, "matmul", Matrices<true, false>(a));
  else if (b_along_k) multiply(stream, "matmul", Matrices<false, true>(a));
  else multiply(stream, "matmul", Matrices<false, false>(a));
}

}  // namespace elinvar
