#include "tensor/cuda/kernel.h"

#include "tensor/cuda/assume.h"
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
  __device__ Some<float, 2> pair(int i) const {
    return values ? pieces_of<2>(values)[i] : Some<float, 2>{{absent, absent}};
  }
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
    if constexpr (std::is_same_v<X, bf16>) assume(addend.narrow);
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

// The same for rows that a warp keeps in registers (kHeldRow): memory is read once, two elements at a time.

using Held = float[kHeldPairs][2];

template <class T>
__device__ void read_row(const T* row, int n, Held& x) {
  Some<T, 2> pairs[kHeldPairs] = {};  // widened after all loads, which would wait for each other otherwise
  each_pair(n, [&](int k, int i) { pairs[k] = pieces_of<2>(row)[i]; });
#pragma unroll
  for (int k = 0; k < kHeldPairs; ++k) {
    x[k][0] = pairs[k].at(0);
    x[k][1] = pairs[k].at(1);
  }
}

template <RowNorm kKind, class X, class Y>
__global__ void forward_held_rows(RowNormArgs a, AnyReads addend) {
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t row = thread_of_grid() / 32, first = row * a.cols;
  const auto n = static_cast<int>(a.cols);
  if (row >= a.rows) return;
  const bool writes = threadIdx.x % 32 == 0;
  Held x;
  read_row(a.x.as<X>() + first, n, x);
  if (addend.data) {
    if constexpr (std::is_same_v<X, bf16>) assume(addend.narrow);
    Held more;
    if (addend.narrow) read_row(static_cast<const bf16*>(addend.data) + first, n, more);
    else read_row(static_cast<const float*>(addend.data) + first, n, more);
    each_pair(n, [&](int k, int i) {
      const auto sum = Some<X, 2>::of([&](int e) { return x[k][e] + more[k][e]; });
      pieces_of<2>(a.sum.as<X>() + first)[i] = sum;
      x[k][0] = sum.at(0);
      x[k][1] = sum.at(1);
    });
  }
  const Affine gamma{a.gamma.as<float>(), 1.0f}, beta{a.beta.as<float>(), 0.0f};
  const V count{static_cast<float>(n)};
  if constexpr (kCentred) {
    const V m = V{warp_pairs_reduce<float>(n, [&](float acc, int k, int e) { return acc + x[k][e]; })} / count;
    if (writes) a.mean.as<float>()[row] = m.v;
    each_pair(n, [&](int k, int) {
      x[k][0] = x[k][0] - m.v;
      x[k][1] = x[k][1] - m.v;
    });
  }
  const V squares{
      warp_pairs_reduce<float>(n, [&](float acc, int k, int e) { return fma(V{x[k][e]}, V{x[k][e]}, V{acc}).v; })};
  const V r = V{1.0f} / sqrt(squares / count + V{static_cast<float>(a.eps)});
  if (writes) a.r.as<float>()[row] = r.v;
  each_pair(n, [&](int k, int i) {
    const Some<float, 2> times = gamma.pair(i), plus = beta.pair(i);
    pieces_of<2>(a.y.as<Y>() + first)[i] =
        Some<Y, 2>::of([&](int e) { return fma(V{x[k][e]} * r, V{times.at(e)}, V{plus.at(e)}).v; });
  });
}

template <RowNorm kKind, class X, class Y>
__global__ void backward_held_rows(RowNormBackwardArgs a) {
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t row = thread_of_grid() / 32, first = row * a.cols;
  const auto n = static_cast<int>(a.cols);
  if (row >= a.rows) return;
  Held h, g;
  read_row(a.x.as<X>() + first, n, h);
  read_row(a.dy.as<Y>() + first, n, g);
  const Affine gamma{a.gamma.as<float>(), 1.0f};
  const V count{static_cast<float>(n)}, m{kCentred ? a.mean.as<float>()[row] : 0.0f}, r{a.r.as<float>()[row]};
  each_pair(n, [&](int k, int i) {
    const Some<float, 2> times = gamma.pair(i);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      h[k][e] = ((kCentred ? V{h[k][e]} - m : V{h[k][e]}) * r).v;
      g[k][e] = g[k][e] * times.at(e);
    }
  });
  V sum_g{0.0f};
  if constexpr (kCentred)
    sum_g = V{warp_pairs_reduce<float>(n, [&](float acc, int k, int e) { return acc + g[k][e]; })} / count;
  const V sum_gh =
      V{warp_pairs_reduce<float>(n, [&](float acc, int k, int e) { return fma(V{g[k][e]}, V{h[k][e]}, V{acc}).v; })} /
      count;
  const auto* sum = a.sum.data ? pieces_of<2>(a.sum.as<X>() + first) : nullptr;
  each_pair(n, [&](int k, int i) {
    auto dx = Some<X, 2>::of([&](int e) {
      const V own{g[k][e]};
      return (r * fma(neg(V{h[k][e]}), sum_gh, kCentred ? own - sum_g : own)).v;
    });
    if (sum) {
      const Some<X, 2> before = sum[i];
      dx = Some<X, 2>::of([&](int e) { return before.at(e) + dx.at(e); });
    }
    pieces_of<2>(a.dx.as<X>() + first)[i] = dx;
  });
}

// Whether rows of `cols` elements in these arrays (In or Out) consist of pairs that a warp can hold.
template <class... Arrays>
bool held(int64_t cols, const Arrays&... arrays) {
  return cols <= kHeldRow && cols % 2 == 0 && start_at_multiple(2 * sizeof(float), arrays.data...);
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
  constexpr int kAtOnce = 8;  // rows whose loads overlap
  V dgamma{0.0f}, dbeta{0.0f};
  for (int64_t k = 0; k < rows; k += kAtOnce) {
    float v[kAtOnce], d[kAtOnce], of_mean[kAtOnce], of_r[kAtOnce];
#pragma unroll
    for (int e = 0; e < kAtOnce; ++e) {
      const int64_t row = k + e < rows ? k + e : rows - 1;
      v[e] = x[row * n];
      d[e] = dy[row * n];
      of_mean[e] = kCentred ? mean[row] : 0.0f;
      of_r[e] = r[row];
    }
#pragma unroll
    for (int e = 0; e < kAtOnce; ++e) {
      if (k + e >= rows) break;
      const V centred = kCentred ? V{v[e]} - V{of_mean[e]} : V{v[e]};
      dgamma = fma(V{d[e]}, centred * V{of_r[e]}, dgamma);
      dbeta = dbeta + V{d[e]};
    }
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
  if (!a.dx.data) return;
  launch(stream, "row_norm_backward", {.blocks = warp_blocks(a.rows)},
         held(a.cols, a.dy, a.x, a.gamma, a.sum, a.dx) ? backward_held_rows<kKind, X, Y> : backward_rows<kKind, X, Y>,
         a);
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
  using namespace HWY_NAMESPACE;
  visit_norm(a.kind, a.x.dtype, a.y.dtype, [&](auto kind, auto x, auto y) {
    using X = decltype(x);
    using Y = decltype(y);
    launch(stream, "row_norm", {.blocks = warp_blocks(a.rows)},
           held(a.cols, a.x, a.gamma, a.beta, a.addend, a.sum, a.y) ? forward_held_rows<kind(), X, Y>
                                                                    : forward_rows<kind(), X, Y>,
           a, AnyReads(a.addend));
  });
}

template <>
void row_norm_backward(Gpu& stream, const RowNormBackwardArgs& a) {
  HWY_NAMESPACE::visit_norm(a.kind, a.x.dtype, a.dy.dtype, [&](auto kind, auto x, auto dy) {
    HWY_NAMESPACE::backward<kind(), decltype(x), decltype(dy)>(stream, a);
  });
}

}  // namespace elinvar
