// Fixed sizes with backfill (EASY: Lifka, "The ANL/IBM SP scheduling system", 1995). The first job that does not fit
// gets a reservation for the time when enough slots will be free. Later jobs start at once if they fit and either end
// before that time or leave enough slots for it. Speed models predict when jobs end.
#include <algorithm>

#include "tools/pool/policies/fixed.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/policies/priority.h"

namespace elinvar::pool {
namespace {

// Returns when a job with this grant ends.
double end_of(const Pool& pool, const Job& job, const Grant& grant) {
  return pool.now + job.seconds_left(job.speed->rate(grant.allocation, grant.shape).samples);
}

struct Reservation {
  double at = kNever;  // start of the reservation
  int spare = 0;       // slots that stay free in addition
};

// Reserves `slots` of a kind from the time when enough of the jobs that hold them have ended.
Reservation reserve(const Offer& offer, const std::string& kind, int slots) {
  std::vector<std::pair<double, int>> ends;
  for (size_t i = 0; i < offer.pool().jobs.size(); ++i)
    if (const Grant& grant = offer.grant(i); count_of(grant.allocation, kind) > 0)
      ends.emplace_back(end_of(offer.pool(), offer.pool().jobs[i], grant),
                        count_of(grant.allocation, kind) * grant.shape.width);
  std::sort(ends.begin(), ends.end());
  int free = offer.free(kind);
  for (const auto& [end, n] : ends) {
    free += n;
    if (free >= slots) return {end, free - slots};
  }
  return {};
}

}  // namespace

Plan backfill(const Pool& pool) {
  const Pool sizes = rigid(pool);
  Offer offer(sizes, Offer::Running::kStay);
  std::map<std::string, Reservation> reserved;
  for (const size_t i : by_priority(offer)) {
    Grant fixed = fixed_grant(offer, i);
    if (fixed.allocation.empty() || offer.grant(i).allocation == fixed.allocation) continue;
    const auto& [kind, n] = *fixed.allocation.begin();
    const int slots = n * fixed.shape.width;
    const auto reservation = reserved.find(kind);
    if (!offer.fits(i, fixed.allocation, fixed.shape)) {
      if (offer.grant(i).allocation.empty() && reservation == reserved.end())
        reserved[kind] = reserve(offer, kind, slots);
      continue;
    }
    if (reservation != reserved.end()) {
      const bool ends = end_of(sizes, sizes.jobs[i], fixed) <= reservation->second.at;
      if (!ends && slots > reservation->second.spare) continue;
      if (!ends) reservation->second.spare -= slots;
      fixed.reason += ", ahead of those that need more";
    }
    offer.give(i, fixed.allocation, fixed.shape, fixed.reason);
  }
  return offer.plan();
}

}  // namespace elinvar::pool
