#pragma once
// Grows jobs where more slots gain most.
#include <optional>

#include "tools/pool/policies/utility.h"

namespace elinvar::pool {

// A job with more workers of one kind.
struct Growth {
  Option option;
  int slots = 0;    // additional slots
  double gain = 0;  // utility per additional slot
};

// Returns the size beyond the job's grant that fits and gains most per slot; nothing if none gains. It also tries
// larger steps (1, 2, 4 ... more, the job's current size, and all free slots), because virtual ranks cannot be divided:
// with 8 of them 5 to 7 workers take equally long, but 8 workers do not. Allocations that waste too much are skipped.
std::optional<Growth> best_growth(const Offer& offer, const Utility& utility, size_t job);

// Repeatedly applies the best growth among these jobs, until none gains or nothing is free.
void grow(Offer& offer, const Utility& utility, const std::vector<size_t>& jobs);

}  // namespace elinvar::pool
