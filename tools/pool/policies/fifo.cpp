// First come, first served, with fixed sizes, as on clusters whose jobs are not elastic. A job gets as many workers as
// its user would request, all of one kind, and keeps them until it ends. A later job waits until all jobs before it
// that may run on the same kinds have started; with a single queue (`queue`), until all jobs before it have. Lost
// workers are replaced when slots become free.
#include "tools/pool/policies/fixed.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/policies/priority.h"

namespace elinvar::pool {
namespace {

Plan in_order(const Pool& pool, bool one_queue) {
  const Pool fixed = rigid(pool);
  Offer offer(fixed, Offer::Running::kStay);
  std::map<std::string, bool> closed;
  for (const size_t i : by_priority(offer)) {
    const Grant grant = fixed_grant(offer, i);
    const bool waits = offer.grant(i).allocation.empty();
    if (grant.allocation.empty() || (waits && closed[grant.allocation.begin()->first])) continue;
    if (offer.fits(i, grant.allocation, grant.shape)) {
      if (offer.grant(i).allocation != grant.allocation) offer.give(i, grant.allocation, grant.shape, grant.reason);
    } else if (waits) {
      for (const std::string& kind : offer.kinds())
        closed[kind] = closed[kind] || one_queue || fixed.jobs[i].allows(kind);
    }
  }
  return offer.plan();
}

}  // namespace

Plan fifo(const Pool& pool) { return in_order(pool, /*one_queue=*/false); }

Plan queue(const Pool& pool) { return in_order(pool, /*one_queue=*/true); }

}  // namespace elinvar::pool
