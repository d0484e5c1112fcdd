#pragma once
// Growing a job where more slots help it most.
#include <optional>

#include "tools/pool/policies/utility.h"

namespace elinvar::pool {

// The job with more workers of one kind.
struct Growth {
  Option option;
  int slots = 0;    // more than now
  double gain = 0;  // utility, for each of them
};

// Returns the size beyond the job's grant that fits and gains most for each slot; nothing if none gains. It tries
// larger steps too (1, 2, 4 ... more, what the job has at present, and all there is), since virtual ranks are assigned
// whole: 5 to 7 workers take equally long for 8 of them, and 8 workers do not. Allocations that waste too much are left
// out.
std::optional<Growth> best_growth(const Offer& offer, const Utility& utility, size_t job);

// Takes the best growth of all these jobs again and again, until none gains or nothing is free.
void grow(Offer& offer, const Utility& utility, const std::vector<size_t>& jobs);

}  // namespace elinvar::pool
