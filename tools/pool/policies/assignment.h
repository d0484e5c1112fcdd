#pragma once
// From numbers to single slots.
#include <vector>

#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// The plan that gives each job of the pool, in their order, as many slots of each kind as it is granted. A job that
// goes on in its shape keeps workers that it has, rather on slots that stay for long and on hosts where more of it is.
// What is new comes from slots that stay for longest, then from hosts where the job is already, then from those that it
// fills best. Wishes for one slot a worker are met to the last; those for more need hosts with as many free, and may
// get fewer workers, or nothing; the reason then says so.
Plan assign(const Pool& pool, const std::vector<Grant>& grants);

}  // namespace elinvar::pool
