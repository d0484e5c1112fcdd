// First come, first served, with fixed sizes: what clusters do whose jobs are not elastic. A job gets as many workers
// as its user would have asked for, all of one kind, and keeps them to its end; who comes later waits until all before
// it that might want the same kinds have started; or, with one queue for all (`queue`), until all before it have,
// whatever they want. Workers that are lost are replaced when there are slots.
#include "tools/pool/policies/fixed.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

Plan in_order(const Pool& pool, bool one_queue) {
  const Pool fixed = rigid(pool);
  Offer offer(fixed, Offer::Running::kStay);
  std::map<std::string, bool> closed;
  for (const size_t i : offer.order()) {
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
