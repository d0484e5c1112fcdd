#include "tools/pool/policies/priority.h"

#include <algorithm>
#include <numeric>

namespace elinvar::pool {

constexpr double kMargin = 1.2;  // of the predicted time to a job's end

bool deadline_at_stake(const Offer& offer, const Job& job) {
  if (job.deadline == kNever) return false;
  double best = 0;
  for (const std::string& kind : job.kinds.empty() ? offer.kinds() : job.kinds)
    best = std::max(best, job.speed->rate({{kind, job.fixed_workers}}, job.shapes.front()).samples);
  return best > 0 && offer.pool().now + kMargin * job.seconds_left(best) > job.deadline;
}

std::vector<size_t> by_priority(const Offer& offer) {
  const std::vector<Job>& jobs = offer.pool().jobs;
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<bool> urgent;
  for (const Job& job : jobs) urgent.push_back(deadline_at_stake(offer, job));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Job &left = jobs[a], &right = jobs[b];
    if (left.priority != right.priority) return left.priority > right.priority;
    if (urgent[a] != urgent[b]) return bool(urgent[a]);
    return left.submitted < right.submitted;
  });
  return order;
}

}  // namespace elinvar::pool
