// Equal shares: slots one by one to the job that has the fewest, whatever it makes of them. As many jobs run as
// their minimums allow, the first comers first. A job grows in the kind that it has (its speed elsewhere is nobody's
// concern here), and where that is used up, in the kind of which most is free.
#include <fmt/format.h>

#include <algorithm>

#include "tools/pool/policies/admission.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

int slots_of(const Grant& grant) { return workers(grant.allocation) * grant.shape.width; }

// The grant with one worker more; no allocation if there is no slot for it or it makes the job slower.
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
