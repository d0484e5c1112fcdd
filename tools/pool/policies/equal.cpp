// Equal shares: slots go one by one to the job that has the fewest, whatever it gains. As many jobs run as their
// minimums allow, in the order of arrival. A job grows on the kind that it has, without regard to its speed on others;
// if no slots of that kind are left, on the kind with the most free slots.
#include <fmt/format.h>

#include <algorithm>

#include "tools/pool/policies/admission.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

int slots_of(const Grant& grant) { return workers(grant.allocation) * grant.shape.width; }

// Returns the grant with one worker more; the allocation is empty if no slot is free or the worker makes the job
// slower.
Allocation one_more(const Offer& offer, size_t i) {
  const Grant& grant = offer.grant(i);
  std::vector<std::string> order = offer.kinds();
  std::stable_sort(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
    const bool here_a = grant.allocation.count(a), here_b = grant.allocation.count(b);
    return here_a != here_b ? here_a : offer.free(a) > offer.free(b);
  });
  const Speed& speed = *offer.pool().jobs[i].speed;
  for (const std::string& kind : order) {
    Allocation more = grant.allocation;
    ++more[kind];
    const bool other = more.size() > 1 && more[kind] == 1;
    if (offer.fits(i, more, grant.shape) &&
        (!other || speed.rate(more, grant.shape).samples > speed.rate(grant.allocation, grant.shape).samples))
      return more;
  }
  return {};
}

}  // namespace

Plan equal(const Pool& pool) {
  Offer offer(pool);
  std::vector<size_t> grow = admit(offer);
  while (!grow.empty()) {
    const auto least = std::min_element(grow.begin(), grow.end(), [&](size_t a, size_t b) {
      return slots_of(offer.grant(a)) < slots_of(offer.grant(b));
    });
    Allocation more = one_more(offer, *least);
    if (more.empty()) {
      grow.erase(least);
    } else {
      const int n = workers(more);
      offer.give(*least, std::move(more), offer.grant(*least).shape, fmt::format("an equal share is {} workers", n));
    }
  }
  return settled(offer, Utility(offer));
}

}  // namespace elinvar::pool
