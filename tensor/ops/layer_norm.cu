#include "tensor/cuda/kernel.h"

#include "tensor/cuda/columns.h"
#include "tensor/cuda/elements.h"
#include "tensor/cuda/reduce.h"
#include "tensor/ops/layer_norm.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// gamma or beta, or its default.
struct Affine {
  const float* values;
  float absent;
  __device__ V operator()(int64_t i) const { return {values ? values[i] : absent}; }
};

// By one warp: writes x + addend, with the elements of `addend` from `row` on. Loads of several terms overlap.
template <class X>
__device__ void add_row(const Reads<X>& x, const AnyReads& addend, int64_t row, X* sum, int64_t n) {
  constexpr int kTerms = 4;
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += kTerms * 32) {
    float terms[kTerms] = {};
#pragma unroll
    for (int e = 0; e < kTerms; ++e)
      if (i + e * 32 < n) terms[e] = x[i + e * 32] + addend[row + i + e * 32];
#pragma unroll
    for (int e = 0; e < kTerms; ++e)
      if (i + e * 32 < n) sum[i + e * 32] = stored<X>(terms[e]);
  }
}

// One warp per row. A thread reads only those elements of a sum that it has written itself.
template <RowNorm kKind, class X, class Y>
__global__ void forward_rows(RowNormArgs a, AnyReads addend) {
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t row = thread_of_grid() / 32, n = a.cols;
  if (row >= a.rows) return;
  const bool writes = threadIdx.x % 32 == 0;
  Reads<X> x{a.x.as<X>() + row * n};
  Y* y = a.y.as<Y>() + row * n;
  if (addend.data) {
    X* sum = a.sum.as<X>() + row * n;
    add_row(x, addend, row * n, sum, n);
    x.data = sum;
  }
  const Affine gamma{a.gamma.as<float>(), 1.0f}, beta{a.beta.as<float>(), 0.0f};
  const V count{static_cast<float>(n)};
  V m{0.0f};
  if constexpr (kCentred) {
    m = V{warp_row_sum<float>(n, [&](int64_t i) { return x[i]; })} / count;
    if (writes) a.mean.as<float>()[row] = m.v;
  }
  const auto centred = [&](int64_t i) { return kCentred ? V{x[i]} - m : V{x[i]}; };
  const auto term = [&](int64_t i) { return centred(i).v; };
  const V squares{warp_row_dot<float>(n, term, term)};
  const V r = V{1.0f} / sqrt(squares / count + V{static_cast<float>(a.eps)});
  if (writes) a.r.as<float>()[row] = r.v;
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += 32)
    y[i] = stored<Y>(fma(centred(i) * r, gamma(i), beta(i)).v);
}

// One warp per row. dx may be dy or the sum that it is added to: a thread writes only elements that it alone reads,
// after the sums.
template <RowNorm kKind, class X, class Y>
__global__ void backward_rows(RowNormBackwardArgs a) {
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t row = thread_of_grid() / 32, n = a.cols;
  if (row >= a.rows) return;
  const Reads<X> x{a.x.as<X>() + row * n};
  const Reads<Y> dy{a.dy.as<Y>() + row * n};
  X* dx = a.dx.as<X>() + row * n;
  const Affine gamma{a.gamma.as<float>(), 1.0f};
  const V count{static_cast<float>(n)}, m{kCentred ? a.mean.as<float>()[row] : 0.0f}, r{a.r.as<float>()[row]};
  const auto h = [&](int64_t i) { return (kCentred ? V{x[i]} - m : V{x[i]}) * r; };
  const auto g = [&](int64_t i) { return V{dy[i]} * gamma(i); };
  const auto g_term = [&](int64_t i) { return g(i).v; };
  V sum_g{0.0f};
  if constexpr (kCentred) sum_g = V{warp_row_sum<float>(n, g_term)} / count;
  const V sum_gh = V{warp_row_dot<float>(n, g_term, [&](int64_t i) { return h(i).v; })} / count;
  const Reads<X> sum{a.sum.data ? a.sum.as<X>() + row * n : nullptr};
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += 32) {
    const X own = stored<X>((r * fma(neg(h(i)), sum_gh, kCentred ? g(i) - sum_g : g(i))).v);
    dx[i] = sum.data ? stored<X>(sum[i] + widened(own)) : own;
  }
}

// One thread per leaf of rows and column: the chains of dgamma and dbeta.
template <RowNorm kKind, class X, class Y>
__global__ void parameter_leaves(RowNormBackwardArgs a, ColumnTile tile, int64_t tiles) {
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t c = int64_t{blockIdx.x} % tiles * tile.width + tile.column(), n = a.cols;
  const int64_t leaf = int64_t{blockIdx.x} / tiles * tile.depth() + tile.leaf(), first = leaf * kColumnLeaf;
  if (c >= n || first >= a.rows) return;
  const int64_t rows = a.rows - first < kColumnLeaf ? a.rows - first : kColumnLeaf;
  const Reads<X> x{a.x.as<X>() + first * n + c};
  const Reads<Y> dy{a.dy.as<Y>() + first * n + c};
  const float *mean = kCentred ? a.mean.as<float>() + first : nullptr, *r = a.r.as<float>() + first;
  V dgamma{0.0f}, dbeta{0.0f};
#pragma unroll 8
  for (int64_t k = 0; k < rows; ++k) {
    const V v{x[k * n]}, d{dy[k * n]};
    dgamma = fma(d, (kCentred ? v - V{mean[k]} : v) * V{r[k]}, dgamma);
    dbeta = dbeta + d;
  }
  float* partial = a.partial.as<float>() + leaf * 2 * n + c;
  partial[0] = dgamma.v;
  partial[n] = dbeta.v;
}

template <RowNorm kKind, class X, class Y>
void backward(Gpu& stream, const RowNormBackwardArgs& a) {
  if (a.partial.data) {  // first, because dx may overwrite dy
    const int64_t leaves = (a.rows + kColumnLeaf - 1) / kColumnLeaf;
    const ColumnTile tile = ColumnTile::of(a.cols, leaves);
    const int64_t tiles = tile.tiles(a.cols);
    launch(stream, "row_norm_parameters",
           {.blocks = (leaves + tile.depth() - 1) / tile.depth() * tiles, .threads = ColumnTile::kThreads},
           parameter_leaves<kKind, X, Y>, a, tile, tiles);
  }
  if (a.dx.data) launch(stream, "row_norm_backward", {.blocks = warp_blocks(a.rows)}, backward_rows<kKind, X, Y>, a);
}

// Calls f with a kind, as a constant, and elements of x and y (or dy).
template <class F>
void visit_norm(RowNorm kind, DType x, DType y, F f) {
  const auto of_kind = [&](auto of_x, auto of_y) {
    if (kind == RowNorm::layer) f(std::integral_constant<RowNorm, RowNorm::layer>(), of_x, of_y);
    else f(std::integral_constant<RowNorm, RowNorm::rms>(), of_x, of_y);
  };
  if (x == DType::bf16) of_kind(bf16{}, bf16{});
  else if (y == DType::bf16) of_kind(float{}, bf16{});
  else of_kind(float{}, float{});
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void row_norm(Gpu& stream, const RowNormArgs& a) {
  HWY_NAMESPACE::visit_norm(a.kind, a.x.dtype, a.y.dtype, [&](auto kind, auto x, auto y) {
    launch(stream, "row_norm", {.blocks = warp_blocks(a.rows)},
           HWY_NAMESPACE::forward_rows<kind(), decltype(x), decltype(y)>, a, AnyReads(a.addend));
  });
}

template <>
void row_norm_backward(Gpu& stream, const RowNormBackwardArgs& a) {
  HWY_NAMESPACE::visit_norm(a.kind, a.x.dtype, a.dy.dtype, [&](auto kind, auto x, auto dy) {
    HWY_NAMESPACE::backward<kind(), decltype(x), decltype(dy)>(stream, a);
  });
}

}  // namespace elinvar
