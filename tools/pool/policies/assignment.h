#pragma once
// Turns numbers of slots into individual slots.
#include <vector>

#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// Returns the plan that gives each job of the pool, in order, as many slots of each kind as it is granted. A job that
// keeps its shape keeps workers, preferably on slots that stay long and on hosts with more of its workers. New workers
// get the slots that stay longest, then those on hosts where the job runs already, then those on hosts that it fills
// best. Grants of one slot per worker are met in full. Wider workers need hosts with enough free slots, so a job may
// get fewer workers or none; the reason then says so.
Plan assign(const Pool& pool, const std::vector<Grant>& grants);

}  // namespace elinvar::pool
