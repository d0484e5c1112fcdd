#pragma once
// What a job gets from policies of fixed sizes.
#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// The pool for such a policy: whoever waits may have its fixed size and nothing else. That is what its user would have
// asked for, or all slots of the kind with the most, if those are fewer.
Pool rigid(const Pool& pool);

// So many workers of one kind: of that which the job has, else of the first that it allows on which they fit now, else
// of the first that could hold them. An empty allocation if that cannot be.
Grant fixed_grant(const Offer& offer, size_t job);

}  // namespace elinvar::pool
