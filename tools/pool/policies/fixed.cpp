#include "tools/pool/policies/fixed.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar::pool {

Pool rigid(const Pool& pool) {
  Pool fixed = pool;
  Allocation usable;
  for (const Slot& slot : pool.slots) usable[slot.kind] += !slot.expiring(pool.now);
  for (Job& job : fixed.jobs) {
    int most = 0;
    for (const auto& [kind, n] : usable)
      if (job.allows(kind)) most = std::max(most, n);
    const int size = std::clamp(std::min(job.fixed_workers, most), job.min_workers, job.max_workers);
    job.fixed_workers = size;
    if (!job.running()) job.min_workers = job.max_workers = size;
  }
  return fixed;
}

Grant fixed_grant(const Offer& offer, size_t i) {
  const Job& job = offer.pool().jobs[i];
  std::vector<std::string> order;
  for (const auto& [kind, n] : offer.present(i)) order.push_back(kind);
  for (const std::string& kind : job.kinds.empty() ? offer.kinds() : job.kinds) order.push_back(kind);
  Grant first;
  const std::vector<WorkerShape> shapes = job.running() ? std::vector<WorkerShape>{job.shape} : job.shapes;
  for (const std::string& kind : order)
    for (const WorkerShape& shape : shapes) {
      const Allocation allocation{{kind, job.fixed_workers}};
      if (!offer.allowed(i, allocation, shape) || job.speed->rate(allocation, shape).samples <= 0) continue;
      Grant grant{allocation, shape, fmt::format("gets its fixed size, {}", text_of(allocation))};
      if (offer.fits(i, allocation, shape)) return grant;
      if (first.allocation.empty()) first = std::move(grant);
      break;
    }
  return first;
}

}  // namespace elinvar::pool
