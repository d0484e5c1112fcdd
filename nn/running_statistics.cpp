#include "nn/running_statistics.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/running_mean.h"

namespace elinvar {

std::vector<Tensor> batch_statistics_of(const std::vector<Statistic>& statistics) {
  std::vector<Tensor> batch_statistics;
  for (const Statistic& s : statistics) {
    batch_statistics.push_back(s.batch.mean);
    visit_float(s.batch.var.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t n = s.batch.count;
      batch_statistics.push_back(
          mul(s.batch.var, static_cast<double>(static_cast<T>(n) / static_cast<T>(std::max<int64_t>(1, n - 1)))));
    });
  }
  return batch_statistics;
}

void update_running_statistics(const std::vector<Statistic>& statistics, std::span<const Tensor> sums, int64_t n) {
  check(sums.size() == 2 * statistics.size(), "[running_statistics] {} batch norms but {} sums", statistics.size(),
        sums.size());
  check(n > 0, "[running_statistics] at least one virtual rank expected, got {}", n);
  std::vector<Tensor> running, batch_statistics;
  std::vector<RunningMeanArgs> constants;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Statistic& s = statistics[i / 2];
    running.push_back((i % 2 == 0 ? s.running_mean : s.running_var)->value);
    batch_statistics.push_back(sums[i].to(running.back().device()).to_contiguous());  // may have been added on the CPU
    RunningMeanArgs a{};
    a.momentum = s.momentum;
    a.count = static_cast<double>(n);
    constants.push_back(a);
  }
  running_mean(running, batch_statistics, constants);
}

}  // namespace elinvar
