#pragma once
// Grants of policies with fixed sizes.
#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// Returns the pool for such a policy: a waiting job may have its fixed size and nothing else. That is the size that its
// user would request, or all slots of the most frequent kind, if these are fewer.
Pool rigid(const Pool& pool);

// Returns the job's fixed size in workers of one kind: the kind that the job has, else the first allowed kind on which
// they fit now, else the first on which they could fit. The allocation is empty if there is none.
Grant fixed_grant(const Offer& offer, size_t job);

}  // namespace elinvar::pool
