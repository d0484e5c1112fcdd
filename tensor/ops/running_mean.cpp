#include "tensor/ops/running_mean.h"

#include <cmath>
#include <set>

#include "tensor/op_check.h"
#include "tensor/trace.h"

namespace elinvar {

// A plain loop suffices for few channels.
void running_mean(CpuStream&, std::span<const RunningMeanArgs> all) {
  for (const RunningMeanArgs& a : all)
    visit_float(a.running.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T weight = static_cast<T>(a.momentum), rest = static_cast<T>(1.0 - a.momentum);
      const T count = static_cast<T>(a.count);
      const T* sum = a.sum.as<T>();
      T* running = a.running.as<T>();
      for (int64_t i = 0; i < a.n; ++i) running[i] = std::fma(weight, sum[i] / count, rest * running[i]);
    });
}

namespace {

void running_mean_of(std::vector<Tensor>& running, const std::vector<Tensor>& sums,
                     const std::vector<RunningMeanArgs>& constants) {
  check(sums.size() == running.size() && constants.size() == running.size(),
        "[running_mean] {} statistics, but {} sums and {} constants", running.size(), sums.size(), constants.size());
  std::vector<RunningMeanArgs> all = constants;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& sum = sums[i];
    check_float("running_mean", running[i]);
    check(sum.shape() == running[i].shape() && sum.dtype() == running[i].dtype(),
          "[running_mean] {} of shape {} expected, got {} of shape {}", name_of(running[i].dtype()),
          to_string(running[i].shape()), name_of(sum.dtype()), to_string(sum.shape()));
    check(running[i].contiguous() && sum.contiguous(), "[running_mean] contiguous elements expected");
    check(sum.device() == running[0].device() && running[i].device() == running[0].device(),
          "[running_mean] tensors must be on one device, got {} and {}", to_string(running[0].device()),
          to_string(sum.device()));
    all[i].sum = in(sum);
    all[i].running = out(running[i]);
    all[i].n = sum.numel();
  }
  // A statistic that two layers share is updated twice, in order.
  std::set<const void*> seen;
  size_t first = 0;
  const auto update_until = [&](size_t end) {
    const std::span<const RunningMeanArgs> some(all.data() + first, end - first);
    on(running[0].device(), [&](auto& stream) { running_mean(stream, some); });
    first = end;
    seen.clear();
  };
  for (size_t i = 0; i < all.size(); ++i) {
    if (seen.contains(all[i].running.data)) update_until(i);
    seen.insert(all[i].running.data);
  }
  if (!all.empty()) update_until(all.size());
}

const Op kRunningMean("running_mean(running, sums, constants)", running_mean_of);

}  // namespace

void running_mean(std::vector<Tensor>& running, const std::vector<Tensor>& sums,
                  const std::vector<RunningMeanArgs>& constants) {
  kRunningMean(running, sums, constants);
}

}  // namespace elinvar
