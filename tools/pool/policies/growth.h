#pragma once
// Where more slots do a job good.
#include <optional>

#include "tools/pool/policies/utility.h"

namespace elinvar::pool {

// The job with more workers of one kind.
struct Growth {
  Option option;
  int slots = 0;    // more than now
  double gain = 0;  // utility, for each of them
};

// Of all sizes beyond the job's wish that fit: the one that gains most for each slot; nothing if none gains. Sizes
// further away are looked at too (1, 2, 4 ... more, what the job has at present, and all there is), since leaves are
// dealt whole: from 5 to 7 workers of 8 leaves there is nothing to be had, from 5 to 8 there is. Mixes that waste too
// much are left out.
std::optional<Growth> best_growth(const Offer& offer, const Utility& utility, size_t job);

// Takes the best growth of all these jobs again and again, until none gains or nothing is free.
void grow(Offer& offer, const Utility& utility, const std::vector<size_t>& jobs);

}  // namespace elinvar::pool
