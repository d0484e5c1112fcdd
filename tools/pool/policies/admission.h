#pragma once
// Decides which jobs run.
#include <string>
#include <vector>

#include "tools/pool/policies/offer.h"
#include "tools/pool/policies/utility.h"

namespace elinvar::pool {

// Gives jobs their minimum, in the offer's order, if it fits. Running jobs get it from the slots that they have, if
// possible, so that they need not start again. A job that does not fit waits, and smaller ones behind it go ahead
// (until it is due). Returns the jobs that have slots, in that order.
std::vector<size_t> admit(Offer& offer);

// Whether an optimising policy may leave this job without slots. False if a rule or the job's priority forbids it.
// Among jobs of the lowest priority the policy chooses which run.
bool may_wait(const Offer& offer, size_t job);

// Completes the plan of a policy that shrinks jobs: a job that would still wait gets its minimum if that fits into free
// slots, or into free slots and those that jobs of lower priority hold beyond their minimum. So no slot stays free that
// a job could use, and no job waits behind one of lower priority. Also applies when no host has room for wide workers
// (assignment.h).
Plan settled(Offer& offer, const Utility& utility, std::string note = "", double gap = 0);

}  // namespace elinvar::pool
