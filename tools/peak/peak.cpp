#include "tools/peak/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/peak/peak.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tensor/ops/copy.h"
#include "tensor/scratch.h"
#include "tensor/simd-inl.h"
#include "tensor/stream.h"
#include "tensor/tile.h"
#include "tools/peak/timing.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Uses enough independent chains to hide the latency of the units, as a grid so that compilers unroll it completely.
// Returns the floating-point operations done.
double multiply_add(int64_t rounds, float& sink) {
  using V = Vec<float>;
  constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 8 : 4, kCols = 3;
  V acc[kRows][kCols];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kCols; ++j) acc[i][j] = V::set(1.0f + static_cast<float>(i + j));
  const V a = V::set(0.999f), b = V::set(0.001f);
  for (int64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kCols; ++j) acc[i][j] = fma(a, b, acc[i][j]);
  V sum = V::set(0.0f);
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kCols; ++j) sum = sum + acc[i][j];
  float lanes[V::kLanes];
  sum.store(lanes);
  sink = lanes[0];
  return 2.0 * static_cast<double>(rounds * kRows * kCols * V::kLanes);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {
HWY_EXPORT(multiply_add);

namespace bench {

namespace {

// `work(rounds)` returns the operations that it did.
template <class F>
double measure(F&& work) {
  const int threads = cpu_stream().threads();
  std::vector<double> operations(static_cast<size_t>(threads));
  const auto run = [&](int64_t rounds) {
    cpu_stream().parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) operations[static_cast<size_t>(i)] = work(rounds);
    });
  };
  // About 50 ms per run, with any instruction set.
  int64_t rounds = 1 << 4;
  while (rounds < int64_t{1} << 34 && median_seconds(0, 1, [&] { run(rounds); }) < 0.05) rounds *= 2;
  const double seconds = median_seconds(1, 5, [&] { run(rounds); });
  return std::accumulate(operations.begin(), operations.end(), 0.0) / seconds / 1e9;
}

}  // namespace

double measure_registers() {
  return measure([](int64_t rounds) {
    float sink = 0.0f;
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(rounds, sink);
    volatile float keep = sink;
    (void)keep;
    return operations;
  });
}

double measure_tile() {
  return measure([](int64_t rounds) {
    constexpr int64_t kLength = 128;  // 32 KiB of B at most
    const TileExtent extent = tile_extent(0.0f, int64_t{1} << 20);
    Scratch<float> a(kLength * extent.rows), b(kLength * extent.cols()), c(extent.rows * extent.cols());
    std::fill_n(a.data(), kLength * extent.rows, 0.75f);
    std::fill_n(b.data(), kLength * extent.cols(), 0.75f);
    float* rows[kMostTileRows];
    for (int r = 0; r < extent.rows; ++r) rows[r] = c.data() + r * extent.cols();
    const std::vector<Run> runs(kChunk / kLength, Run{.length = kLength});  // all use the same operands
    const Tile<float> tile{.runs = runs.data(),
                           .run_count = std::ssize(runs),
                           .tile_rows = extent.rows,
                           .rows = extent.rows,
                           .cols = extent.cols(),
                           .panel = a.data(),
                           .b = b.data(),
                           .b_step = extent.cols(),
                           .c_rows = rows};
    for (int64_t i = 0; i < rounds; ++i) multiply_tile(tile);
    return 2.0 * static_cast<double>(rounds * kChunk * extent.rows * extent.cols());
  });
}

Peak measure_peak() {
  const double gflops = measure_registers();
  const Tensor from = Tensor::zeros({64 << 20});
  Tensor to = Tensor::zeros({64 << 20});
  const double copy_seconds = median_seconds(1, 5, [&] { copy(from, to); });
  return {gflops, 2.0 * static_cast<double>(from.bytes()) / copy_seconds / 1e9};
}

}  // namespace bench
}  // namespace elinvar
#endif
