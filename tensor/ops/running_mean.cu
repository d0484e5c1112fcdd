#include "tensor/cuda/kernel.h"

#include "tensor/cuda/many.h"
#include "tensor/ops/running_mean.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

constexpr int kThreads = 256;

__global__ void update_channels(Many<RunningMeanArgs> all) {
  const auto [a, block] = all.find();
  const int64_t i = block * kThreads + threadIdx.x;
  if (i >= a.n) return;
  const Vec<float> weight{static_cast<float>(a.momentum)}, mean{a.sum.as<float>()[i] / static_cast<float>(a.count)};
  float& running = a.running.as<float>()[i];
  running = fma(weight, mean, Vec<float>{static_cast<float>(1.0 - a.momentum) * running}).v;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void running_mean(Gpu& stream, std::span<const RunningMeanArgs> all) {
  launch_many(
      stream, "running_mean", all,
      [](const RunningMeanArgs& a) { return (a.n + HWY_NAMESPACE::kThreads - 1) / HWY_NAMESPACE::kThreads; },
      HWY_NAMESPACE::update_channels);
}

}  // namespace elinvar
