#pragma once
// Who runs at all.
#include <string>
#include <vector>

#include "tools/pool/policies/offer.h"
#include "tools/pool/policies/worth.h"

namespace elinvar::pool {

// Gives jobs their minimum, in the offer's order, wherever it fits: those that run rather of what they have, so that
// they need not start anew. Who does not fit waits, and smaller ones behind it go ahead (until it is due). Returns
// those that have something, in that order.
std::vector<size_t> admit(Offer& offer);

// Whether a policy that weighs jobs against each other may leave this one with nothing: not where the rules or its
// priority stand against that. Which of several jobs of the lowest priority run is the policy's to say.
bool may_wait(const Offer& offer, size_t job);

// The plan of a policy that lets jobs shrink. Whoever would still wait gets its minimum if that fits into what is free,
// or into that and what jobs of lower priority have and need not have: so no slot is free that a job could use, and
// nobody waits behind a job of lower priority. The same where hosts have no room for wide workers (dealing.h).
Plan settled(Offer& offer, const Worth& worth, std::string note = "", double gap = 0);

}  // namespace elinvar::pool
