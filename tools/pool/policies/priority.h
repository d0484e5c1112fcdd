#pragma once
// Which job comes first if slots do not suffice for all.
#include <vector>

#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// Returns the jobs sorted by priority, then by whether their deadline is at stake, then by submission.
std::vector<size_t> by_priority(const Offer& offer);

// Whether the job would miss or nearly miss its deadline with the workers that its user would request.
bool deadline_at_stake(const Offer& offer, const Job& job);

}  // namespace elinvar::pool
