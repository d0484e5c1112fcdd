#pragma once
// Who runs at all.
#include <vector>

#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// Gives jobs their minimum, in the offer's order, wherever it fits: those that run rather of what they have, so that
// they need not start anew. Who does not fit waits, and smaller ones behind it go ahead (until it is due). Returns
// those that have something, in that order.
std::vector<size_t> admit(Offer& offer);

}  // namespace elinvar::pool
