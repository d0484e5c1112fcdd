#include "tensor/cuda/kernel.h"

#include "tensor/cuda/exact_warpgroups.h"
#include "tensor/cuda/product.h"
#include "tensor/ops/matmul.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

struct MatrixResult {
  int m, n, k, batch;
  float* c;
  int64_t c_row, c_batch;
  const float* added;

  explicit MatrixResult(const MatmulArgs& args)
      : m(static_cast<int>(args.m)),
        n(static_cast<int>(args.n)),
        k(static_cast<int>(args.k)),
        batch(static_cast<int>(args.batch)),
        c(static_cast<float*>(args.c)),
        c_row(args.c_row),
        c_batch(args.c_batch),
        added(static_cast<const float*>(args.bias)) {}

  bool fours_of_c() const { return c_row % 4 == 0 && c_batch % 4 == 0 && reinterpret_cast<uintptr_t>(c) % 16 == 0; }
  __device__ float* row(int of_batch, int i) const { return c + of_batch * c_batch + i * c_row; }
  __device__ const float* bias(int) const { return added; }
};

struct ExactMatrixResult : MatrixResult {
  Exponents exponents;

  explicit ExactMatrixResult(const MatmulArgs& args) : MatrixResult(args), exponents(args.exponents) {}

  __device__ int32_t row_exponent(int, int i) const { return exponents.rows[i]; }
  __device__ int32_t column_exponent(int, int j) const { return exponents.columns[j]; }
};

template <bool kAlongKOfA, bool kAlongKOfB, class T, class OfFactors>
struct Matrices : OfFactors {
  using Result = OfFactors;
  MatrixOperand<kAlongKOfA, T> a;
  MatrixOperand<kAlongKOfB, T> b;

  explicit Matrices(const MatmulArgs& args)
      : Result(args),
        a{static_cast<const T*>(args.a.data), args.a.row, args.a.col, args.a.batch},
        b{static_cast<const T*>(args.b.data), args.b.col, args.b.row, args.b.batch} {}

  bool in_fours() const { return a.in_fours(this->m, this->k) && b.in_fours(this->n, this->k); }
  __device__ SkipNothing skip(int) const { return {}; }
};

template <bool kAlongKOfA, bool kAlongKOfB>
using FloatMatrices = Matrices<kAlongKOfA, kAlongKOfB, float, MatrixResult>;
// Of pairs, or of chunks.
template <bool kAlongKOfA, bool kAlongKOfB, class T = uint32_t>
using ExactMatrices = Matrices<kAlongKOfA, kAlongKOfB, T, ExactMatrixResult>;

// Calls f with whether neighbours in memory are neighbours in k, of either factor.
template <class F>
void visit_layouts(const MatmulArgs& a, F f) {
  const bool a_along_k = a.a.col == 1, b_along_k = a.b.row == 1 && a.b.col != 1;
  if (a_along_k && b_along_k) f.template operator()<true, true>();
  else if (a_along_k) f.template operator()<true, false>();
  else if (b_along_k) f.template operator()<false, true>();
  else f.template operator()<false, false>();
}

constexpr int kCopiedSide = 64;  // of the part of a matrix that a block copies

// Copies (rows, cols) to (cols, rows); both extents are in fours. A thread transposes 4 x 4 elements in its registers.
// A warp reads 128 bytes of each of 16 rows and writes 64 bytes, two whole sectors, of each of 32.
__global__ void transposed_copy(const float* from, int64_t from_row, float* to, int rows, int cols) {
  static_assert(Grid{}.threads == kCopiedSide * kCopiedSide / 16);
  const int t = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int across = (cols + kCopiedSide - 1) / kCopiedSide, down = block / across;
  const int row = down * kCopiedSide + t / 8 % 16 * 4,
            col = (block - down * across) * kCopiedSide + t / 128 * 32 + t % 8 * 4;
  if (row >= rows || col >= cols) return;
  float4 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = *reinterpret_cast<const float4*>(from + (row + i) * from_row + col);
  to += int64_t{col} * rows + row;
  const float4 y[4] = {make_float4(x[0].x, x[1].x, x[2].x, x[3].x), make_float4(x[0].y, x[1].y, x[2].y, x[3].y),
                       make_float4(x[0].z, x[1].z, x[2].z, x[3].z), make_float4(x[0].w, x[1].w, x[2].w, x[3].w)};
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<float4*>(to + int64_t{i} * rows) = y[i];
}

// Multiplies with a transposed copy of B if that is faster, or returns false.
template <bool kAlongKOfA>
bool multiply_with_copy(Gpu& stream, const MatmulArgs& a) {
  const FloatMatrices<kAlongKOfA, true> f(a);
  if (a.batch != 1 || a.n % 4 != 0 || !f.in_fours() || !f.fours_of_c() ||
      !copies_transposed(a.m, a.n, a.k, gpu_extent()))
    return false;
  const DeviceScratch<float> b(stream, a.k * a.n);
  const auto blocks = [](int64_t extent) { return (extent + kCopiedSide - 1) / kCopiedSide; };
  launch(stream, "matmul", {.blocks = blocks(a.n) * blocks(a.k)}, transposed_copy, f.b.data, f.b.of_i, b.data(), f.n,
         f.k);
  MatmulArgs with_copy = a;
  with_copy.b = {b.data(), a.n, 1, 0};
  multiply(stream, "matmul", FloatMatrices<kAlongKOfA, false>(with_copy));
  return true;
}

// Multiplies chunks of the pairs, or returns false: rows must follow each other. The last chunk is filled up with zeros
// where only small tiles could multiply the pairs.
template <bool kAlongKOfA, bool kAlongKOfB>
bool multiply_in_chunks(Gpu& stream, const MatmulArgs& pairs) {
  using Factors = ExactMatrices<false, false, Chunk>;
  constexpr const char* kName = "exact_matmul";
  const ExactMatrices<kAlongKOfA, kAlongKOfB> f(pairs);
  if (pairs.batch != 1 || (kAlongKOfA ? pairs.a.row != pairs.k : pairs.a.col != pairs.m) ||
      (kAlongKOfB ? pairs.b.col != pairs.k : pairs.b.row != pairs.n) || (pairs.k % kPairsOfChunk != 0 && f.in_fours()))
    return false;
  const auto plan = plan_of_chunks<Factors>(f, (pairs.m + pairs.n) * pairs.k);
  if (!plan) return false;
  const Chunks a(stream, kName, pairs.a.data, kAlongKOfA, pairs.m, pairs.k),
      b(stream, kName, pairs.b.data, kAlongKOfB, pairs.n, pairs.k);
  MatmulArgs chunks = pairs;
  chunks.k = chunks_for(pairs.k);
  chunks.a = {a.data(), 1, chunks.m, 0};
  chunks.b = {b.data(), chunks.n, 1, 0};
  multiply_chunks(stream, kName, Factors(chunks), f, *plan, a, b);
  return true;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void matmul(Gpu& stream, const MatmulArgs& a) {
  using namespace HWY_NAMESPACE;
  check_extents("matmul", {a.batch, a.m, a.n, a.k});
  visit_layouts(a, [&]<bool kAlongKOfA, bool kAlongKOfB>() {
    if constexpr (kAlongKOfB) {
      if (multiply_with_copy<kAlongKOfA>(stream, a)) return;
    }
    multiply(stream, "matmul", FloatMatrices<kAlongKOfA, kAlongKOfB>(a));
  });
}

template <>
void exact_matmul(Gpu& stream, const MatmulArgs& a) {
  using namespace HWY_NAMESPACE;
  check_extents("exact_matmul", {a.m, a.n, a.k});
  visit_layouts(a, [&]<bool kAlongKOfA, bool kAlongKOfB>() {
    if constexpr (!kAlongKOfA && kAlongKOfB) invariant(false, "a layout that exact_matmul refuses");
    else if (!multiply_in_chunks<kAlongKOfA, kAlongKOfB>(stream, a))
      multiply_exactly(stream, "exact_matmul", ExactMatrices<kAlongKOfA, kAlongKOfB>(a));
  });
}

}  // namespace elinvar
