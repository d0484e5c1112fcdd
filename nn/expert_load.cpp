#include "nn/expert_load.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tensor/base/check.h"

namespace elinvar {

void add_loads(std::vector<ExpertLoad>& sum, const std::vector<ExpertLoad>& more) {
  if (sum.empty()) sum.resize(more.size());
  if (more.empty()) return;
  check(sum.size() == more.size(), "[experts] loads of {} mixtures expected, got {}", sum.size(), more.size());
  for (size_t m = 0; m < more.size(); ++m) {
    std::vector<int64_t>& choices = sum[m].choices;
    choices.resize(std::max(choices.size(), more[m].choices.size()));
    for (size_t e = 0; e < more[m].choices.size(); ++e) choices[e] += more[m].choices[e];
    sum[m].dropped += more[m].dropped;
  }
}

std::map<std::string, double> metrics_of(const std::vector<ExpertLoad>& loads) {
  double least = std::numeric_limits<double>::infinity(), most = 0, dropped = 0, all = 0;
  for (const auto& [choices, lost] : loads) {
    const auto total = static_cast<double>(std::accumulate(choices.begin(), choices.end(), int64_t{0}));
    if (total == 0) continue;
    const double mean = total / static_cast<double>(choices.size());
    const auto [low, high] = std::ranges::minmax(choices);
    least = std::min(least, static_cast<double>(low) / mean);
    most = std::max(most, static_cast<double>(high) / mean);
    dropped += static_cast<double>(lost);
    all += total;
  }
  if (all == 0) return {};
  return {{"expert_load_least", least}, {"expert_load_most", most}, {"expert_choices_dropped", dropped / all}};
}

}  // namespace elinvar
