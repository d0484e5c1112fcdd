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
  const V inv = V{1.0f} / sqrt(V{args.var.as<float>()[c]} + V{static_cast<float>(args.eps)});
  const V a = V{args.gamma.as<float>()[c]} * inv;
  args.inv.as<float>()[c] = inv.v;
  args.a.as<float>()[c] = a.v;
  args.b.as<float>()[c] = fma(neg(V{args.mean.as<float>()[c]}), a, V{args.beta.as<float>()[c]}).v;
}

// Passes over elements. A thread keeps its channel, and so the factors, for kRowsOfThread rows, whose loads overlap.
constexpr int kRowsOfThread = 8;

struct Rows {
  int64_t rows, channels, tiles;
  ColumnTile tile;

  Rows(int64_t n, int64_t of_channels)
      : rows(n), channels(of_channels), tile(ColumnTile::of(of_channels, (n + kRowsOfThread - 1) / kRowsOfThread)) {
    tiles = tile.tiles(channels);
  }
  int64_t block_rows() const { return kRowsOfThread * tile.depth(); }
  Grid grid() const {
    return {.blocks = (rows + block_rows() - 1) / block_rows() * tiles, .threads = ColumnTile::kThreads};
  }

  __device__ int64_t channel() const { return int64_t{blockIdx.x} % tiles * tile.width + tile.column(); }
  // Calls f(k, offset) for the thread's rows, k = 0, 1, ...
  template <class F>
  __device__ void each(int64_t c, F f) const {
    const int64_t first = int64_t{blockIdx.x} / tiles * (kRowsOfThread * tile.depth()) + tile.leaf();
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      const int64_t row = first + k * tile.depth();
      if (row < rows) f(k, row * channels + c);
    }
  }
};

template <class T, bool kResidual, bool kRelu>
__global__ void apply(BatchNormApplyArgs args, Rows rows) {
  const int64_t c = rows.channel();
  if (c >= args.channels) return;
  const Reads<T> x{args.x.as<T>()}, residual{args.residual.as<T>()};
  T* y = args.y.as<T>();
  const V a{args.a.as<float>()[c]}, b{args.b.as<float>()[c]}, zero{0.0f};
  V v[kRowsOfThread], r[kRowsOfThread];
  rows.each(c, [&](int k, int64_t at) {
    v[k] = {x[at]};
    if constexpr (kResidual) r[k] = {residual[at]};
  });
  rows.each(c, [&](int k, int64_t at) {
    V result = fma(v[k], a, b);
    if constexpr (kResidual) result = result + r[k];
    if constexpr (kRelu) result = select(result <= zero, zero, result);
    y[at] = stored<T>(result.v);
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

template <class T, ReluMask kMask, bool kEvaluation>
__global__ void gradient(BatchNormGradientArgs args, Rows rows) {
  constexpr bool kReadsX = !kEvaluation || kMask == ReluMask::from_x, kReadsY = kMask == ReluMask::from_y;
  const int64_t c = rows.channel();
  if (c >= args.channels) return;
  const Reads<T> dy{args.dy.as<T>()}, x{args.x.as<T>()}, y{args.y.as<T>()};
  const auto* bits = args.y.as<uint8_t>();
  T* dx = args.dx.as<T>();
  const V mean{args.mean.as<float>()[c]}, a{args.a.as<float>()[c]}, b{args.b.as<float>()[c]};
  V mean_g{0.0f}, slope{0.0f};
  if constexpr (!kEvaluation) {
    const V n{static_cast<float>(args.rows)};
    mean_g = V{args.sum_g.as<float>()[c]} / n;
    slope = neg((V{args.sum_gx.as<float>()[c]} / n) * V{args.inv.as<float>()[c]});
  }
  V vdy[kRowsOfThread], vx[kRowsOfThread], vy[kRowsOfThread];
  rows.each(c, [&](int k, int64_t at) {
    vdy[k] = {dy[at]};
    vx[k] = kReadsX ? V{x[at]} : a;
    if constexpr (kMask == ReluMask::from_bits) vy[k] = passed<V>(bits, at);
    else vy[k] = kReadsY ? V{y[at]} : a;
  });
  rows.each(c, [&](int k, int64_t at) {
    const V g = masked<kMask>(vdy[k], vx[k], vy[k], a, b);
    if constexpr (kEvaluation) dx[at] = stored<T>((g * a).v);
    else dx[at] = stored<T>(gradient_of(g, vx[k], mean, a, mean_g, slope).v);
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
  const Rows rows(a.rows, a.channels);
  const auto with = [&](auto kernel) { launch(stream, "batch_norm", rows.grid(), kernel, a, rows); };
  const bool residual = a.residual.data != nullptr;
  visit_activation(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (residual && a.relu) with(apply<T, true, true>);
    else if (residual) with(apply<T, true, false>);
    else if (a.relu) with(apply<T, false, true>);
    else with(apply<T, false, false>);
  });
  if (!a.mask.data) return;
  const int64_t size = a.rows * a.channels;
  launch(stream, "batch_norm", {.blocks = (mask_bytes(size) + 255) / 256}, mask_bits,
         static_cast<const float*>(a.y.as<float>()), size, a.mask.as<uint8_t>());
}

template <>
void batch_norm_gradient(Gpu& stream, const BatchNormGradientArgs& a) {
  using namespace HWY_NAMESPACE;
  const Rows rows(a.rows, a.channels);
  const auto with = [&]<ReluMask kMask>() {
    const auto of_type = [&](auto zero) {
      using T = decltype(zero);
      const auto kernel = a.sum_g.data ? gradient<T, kMask, false> : gradient<T, kMask, true>;
      launch(stream, "batch_norm_gradient", rows.grid(), kernel, a, rows);
    };
    if constexpr (kMask == ReluMask::from_bits) of_type(float{});
    else visit_activation(a.x.dtype, of_type);
  };
  if (a.mask == ReluMask::from_x) with.template operator()<ReluMask::from_x>();
  else if (a.mask == ReluMask::from_y) with.template operator()<ReluMask::from_y>();
  else if (a.mask == ReluMask::from_bits) with.template operator()<ReluMask::from_bits>();
  else with.template operator()<ReluMask::none>();
}

}  // namespace elinvar
