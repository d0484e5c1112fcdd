#pragma once
// Picks one choice from each group, within capacities, for the greatest total utility. This is a multiple-choice
// knapsack, which COIN-OR CBC solves as a mixed-integer program, unless the first selection is good enough already; a
// bound by Lagrangian relaxation tells that within a millisecond or two.
#include <optional>
#include <utility>
#include <vector>

namespace elinvar::pool {

struct Choice {
  double utility = 0;
  std::vector<std::pair<int, double>> uses;  // (capacity, amount)
};

struct Chosen {
  std::vector<size_t> of;  // one choice for each group
  double utility = 0;      // total
  double bound = 0;        // upper bound for all selections
};

struct Limits {
  double seconds = 1;
  int nodes = 20000;   // of the search tree; with only this limit, the result does not depend on the machine's speed
  double gap = 0.001;  // relative distance to the bound that is good enough
};

// `start`, if not empty, is the first selection, which must fit. Returns null if no selection fits or none was found.
std::optional<Chosen> choose(const std::vector<std::vector<Choice>>& groups, const std::vector<double>& capacities,
                             const std::vector<size_t>& start, const Limits& limits = {});

}  // namespace elinvar::pool
