#include "tools/peak/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/peak/peak.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <atomic>

#include "tensor/ops/copy.h"
#include "tensor/simd-inl.h"
#include "tensor/stream.h"
#include "tools/bench/timing.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Enough independent chains to hide the latency of the units, as a grid so that compilers unroll it whole; returns the
// floating-point operations done.
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

double measure_gflops() {
  const int threads = cpu_stream().threads();
  double operations = 0.0;
  const auto run = [&](int64_t rounds) {
    std::atomic<double> total{0.0};
    cpu_stream().parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float sink = 0.0f;
        total += HWY_DYNAMIC_DISPATCH(multiply_add)(rounds, sink);
        volatile float keep = sink;
        (void)keep;
      }
    });
    operations = total;
  };
  // About 50 ms a run, whatever the instruction set.
  int64_t rounds = 1 << 14;
  while (rounds < int64_t{1} << 34 && median_seconds(0, 1, [&] { run(rounds); }) < 0.05) rounds *= 2;
  const double seconds = median_seconds(1, 5, [&] { run(rounds); });
  return operations / seconds / 1e9;
}

Peak measure_peak() {
  const double gflops = measure_gflops();
  const Tensor from = Tensor::zeros({64 << 20});
  Tensor to = Tensor::zeros({64 << 20});
  const double copy_seconds = median_seconds(1, 5, [&] { copy(from, to); });
  return {gflops, 2.0 * static_cast<double>(from.bytes()) / copy_seconds / 1e9};
}

}  // namespace bench
}  // namespace elinvar
#endif
