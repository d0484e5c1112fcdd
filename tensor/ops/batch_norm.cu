#include "tensor/cuda/kernel.h"

#include "tensor/cuda/columns.h"
#include "tensor/cuda/elements.h"
#include "tensor/ops/batch_norm-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

__global__ void factors(BatchNormFactorsArgs args) {
  const int64_t c = thread_of_grid();
  if (c >= args.channels) return;
  const auto f = factors_of(V{args.mean.as<float>()[c]}, V{args.var.as<float>()[c]}, V{args.gamma.as<float>()[c]},
                            V{args.beta.as<float>()[c]}, V{static_cast<float>(args.eps)});
  args.inv.as<float>()[c] = f.inv.v;
  args.a.as<float>()[c] = f.a.v;
  args.b.as<float>()[c] = f.b.v;
}

// Passes over elements. A thread keeps kCount adjacent channels, one access of 16 bytes or a single element, and so
// their factors, for some rows, whose loads overlap.
template <int kCount>
struct Rows {
  static constexpr int kOfThread = kCount == 1 ? 8 : 4;
  int64_t rows, pieces, tiles;  // pieces of a row
  ColumnTile tile;

  Rows(int64_t n, int64_t channels)
      : rows(n), pieces(channels / kCount), tile(ColumnTile::of(pieces, (n + kOfThread - 1) / kOfThread)) {
    tiles = tile.tiles(pieces);
  }
  int64_t block_rows() const { return kOfThread * tile.depth(); }
  Grid grid() const {
    return {.blocks = (rows + block_rows() - 1) / block_rows() * tiles, .threads = ColumnTile::kThreads};
  }

  __device__ int64_t piece() const { return int64_t{blockIdx.x} % tiles * tile.width + tile.column(); }
  // Calls f(k, offset in pieces) for the thread's rows, k = 0, 1, ...
  template <class F>
  __device__ void each(int64_t c, F f) const {
    const int64_t first = int64_t{blockIdx.x} / tiles * (kOfThread * tile.depth()) + tile.leaf();
#pragma unroll
    for (int k = 0; k < kOfThread; ++k) {
      const int64_t row = first + k * tile.depth();
      if (row < rows) f(k, row * pieces + c);
    }
  }
};

template <class T, int kCount, bool kResidual, bool kRelu>
__global__ void apply(BatchNormApplyArgs args, Rows<kCount> rows) {
  using Piece = Some<T, kCount>;
  const int64_t c = rows.piece();
  if (c >= rows.pieces) return;
  const Piece *x = pieces_of<kCount>(args.x.as<T>()), *residual = pieces_of<kCount>(args.residual.as<T>());
  Piece* y = pieces_of<kCount>(args.y.as<T>());
  Piece of_x[Rows<kCount>::kOfThread], of_residual[Rows<kCount>::kOfThread];
  rows.each(c, [&](int k, int64_t at) {
    of_x[k] = x[at];
    if constexpr (kResidual) of_residual[k] = residual[at];
  });
  const Some<float, kCount> a = pieces_of<kCount>(args.a.as<float>())[c], b = pieces_of<kCount>(args.b.as<float>())[c];
  const V zero{0.0f};
  rows.each(c, [&](int k, int64_t at) {
    y[at] = Piece::of([&](int e) {
      V result = fma(V{of_x[k].at(e)}, V{a.at(e)}, V{b.at(e)});
      if constexpr (kResidual) result = result + V{of_residual[k].at(e)};
      if constexpr (kRelu) result = select(result <= zero, zero, result);
      return result.v;
    });
  });
}

// Packs the bits of y, one byte a thread.
__global__ void mask_bits(const float* y, int64_t size, uint8_t* bits) {
  const int64_t i = thread_of_grid(), begin = 8 * i;
  if (begin >= size) return;
  int byte = 0;
  for (int64_t k = begin; k < size && k < begin + 8; ++k)
    if (!(y[k] <= 0.0f)) byte |= 1 << (k - begin);
  bits[i] = static_cast<uint8_t>(byte);
}

// Writes dx of a piece of channels in evaluation: g a.
template <int kCount>
struct EvaluationGradient {
  Some<float, kCount> a;

  __device__ EvaluationGradient(const BatchNormGradientArgs& args, int64_t c)
      : a(pieces_of<kCount>(args.a.as<float>())[c]) {}
  __device__ V operator()(int e, V g, V) const { return g * V{a.at(e)}; }
};

// The same in training.
template <int kCount>
struct TrainingGradient {
  Some<float, kCount> a, mean, mean_g, slope;

  __device__ TrainingGradient(const BatchNormGradientArgs& args, int64_t c)
      : a(pieces_of<kCount>(args.a.as<float>())[c]), mean(pieces_of<kCount>(args.mean.as<float>())[c]) {
    const Some<float, kCount> inv = pieces_of<kCount>(args.inv.as<float>())[c],
                              sum_g = pieces_of<kCount>(args.sum_g.as<float>())[c],
                              sum_gx = pieces_of<kCount>(args.sum_gx.as<float>())[c];
    const V n{static_cast<float>(args.rows)};
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      mean_g.v[e] = (V{sum_g.at(e)} / n).v;
      slope.v[e] = neg((V{sum_gx.at(e)} / n) * V{inv.at(e)}).v;
    }
  }
  __device__ V operator()(int e, V g, V x) const {
    return gradient_of(g, x, V{mean.at(e)}, V{a.at(e)}, V{mean_g.at(e)}, V{slope.at(e)});
  }
};

template <class T, int kCount, ReluMask kMask, bool kEvaluation>
__global__ void gradient(BatchNormGradientArgs args, Rows<kCount> rows) {
  using Piece = Some<T, kCount>;
  constexpr bool kReadsX = !kEvaluation || kMask == ReluMask::from_x, kReadsY = kMask == ReluMask::from_y,
                 kReadsBits = kMask == ReluMask::from_bits;
  constexpr int kOfThread = Rows<kCount>::kOfThread;
  const int64_t c = rows.piece();
  if (c >= rows.pieces) return;
  const Piece *dy = pieces_of<kCount>(args.dy.as<T>()), *x = pieces_of<kCount>(args.x.as<T>()),
              *y = pieces_of<kCount>(args.y.as<T>());
  Piece* dx = pieces_of<kCount>(args.dx.as<T>());
  Piece of_dy[kOfThread], of_x[kOfThread], of_y[kOfThread];
  int bits[kOfThread];
  rows.each(c, [&](int k, int64_t at) {
    of_dy[k] = dy[at];
    if constexpr (kReadsX) of_x[k] = x[at];
    if constexpr (kReadsY) of_y[k] = y[at];
    // A piece has its bits in one byte.
    if constexpr (kReadsBits) bits[k] = args.y.as<uint8_t>()[at * kCount / 8] >> (at * kCount % 8);
  });
  const std::conditional_t<kEvaluation, EvaluationGradient<kCount>, TrainingGradient<kCount>> result(args, c);
  const Some<float, kCount> a = pieces_of<kCount>(args.a.as<float>())[c], b = pieces_of<kCount>(args.b.as<float>())[c];
  rows.each(c, [&](int k, int64_t at) {
    dx[at] = Piece::of([&](int e) {
      V vx{a.at(e)}, vy{a.at(e)};
      if constexpr (kReadsX) vx = {of_x[k].at(e)};
      if constexpr (kReadsY) vy = {of_y[k].at(e)};
      if constexpr (kReadsBits) vy = {static_cast<float>(bits[k] >> e & 1)};
      const V g = masked<kMask>(V{of_dy[k].at(e)}, vx, vy, V{a.at(e)}, V{b.at(e)});
      return result(e, g, vx).v;
    });
  });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void batch_norm_factors(Gpu& stream, const BatchNormFactorsArgs& a) {
  launch(stream, "batch_norm_factors", {.blocks = (a.channels + 255) / 256}, HWY_NAMESPACE::factors, a);
}

template <>
void batch_norm_apply(Gpu& stream, const BatchNormApplyArgs& a) {
  using namespace HWY_NAMESPACE;
  const bool residual = a.residual.data != nullptr;
  const auto of_pieces = [&]<class T, int kCount>() {
    const Rows<kCount> rows(a.rows, a.channels);
    const auto with = [&](auto kernel) { launch(stream, "batch_norm", rows.grid(), kernel, a, rows); };
    if (residual && a.relu) with(apply<T, kCount, true, true>);
    else if (residual) with(apply<T, kCount, true, false>);
    else if (a.relu) with(apply<T, kCount, false, true>);
    else with(apply<T, kCount, false, false>);
  };
  visit_pieces(a.channels, a.x.dtype, of_pieces, a.x, a.residual, a.y, a.a, a.b);
  if (!a.mask.data) return;
  const int64_t size = a.rows * a.channels;
  launch(stream, "batch_norm", {.blocks = (mask_bytes(size) + 255) / 256}, mask_bits,
         static_cast<const float*>(a.y.as<float>()), size, a.mask.as<uint8_t>());
}

template <>
void batch_norm_gradient(Gpu& stream, const BatchNormGradientArgs& a) {
  using namespace HWY_NAMESPACE;
  const auto with = [&]<class T, int kCount, ReluMask kMask>() {
    const Rows<kCount> rows(a.rows, a.channels);
    const auto kernel = a.sum_g.data ? gradient<T, kCount, kMask, false> : gradient<T, kCount, kMask, true>;
    launch(stream, "batch_norm_gradient", rows.grid(), kernel, a, rows);
  };
  const auto of_pieces = [&]<class T, int kCount>() {
    if (a.mask == ReluMask::from_x) return with.template operator()<T, kCount, ReluMask::from_x>();
    if (a.mask == ReluMask::from_y) return with.template operator()<T, kCount, ReluMask::from_y>();
    if constexpr (std::is_same_v<T, float>)
      if (a.mask == ReluMask::from_bits) return with.template operator()<T, kCount, ReluMask::from_bits>();
    with.template operator()<T, kCount, ReluMask::none>();
  };
  const In y = a.mask == ReluMask::from_y ? a.y : In{};
  visit_pieces(a.channels, a.x.dtype, of_pieces, a.dy, a.x, y, a.dx, a.mean, a.inv, a.a, a.b, a.sum_g, a.sum_gx);
}

}  // namespace elinvar
