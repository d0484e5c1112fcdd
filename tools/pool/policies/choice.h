#pragma once
// Picks one choice from each group, within capacities, for the greatest total utility. This is a multiple-choice
// knapsack, which COIN-OR CBC solves as a mixed-integer program. If a bound by Lagrangian relaxation, which takes a
// millisecond or two, shows that the first selection is good enough, CBC is not called.
#include <optional>
#include <utility>
#include <vector>

namespace elinvar::pool {

struct Choice {
  double utility = 0;
  std::vector<std::pair<int, double>> uses;  // (capacity, amount)
};

struct Chosen {
  std::vector<size_t> of;  // index of the choice in each group
  double utility = 0;      // total
  double bound = 0;        // upper bound for all selections
};

struct Limits {
  double seconds = 1;
  // of the search tree; if this limit comes first, the result does not depend on the machine's speed
  int nodes = 20000;
  double gap = 0.001;  // relative distance to the bound that is good enough
};

// `start`, if not empty, is the first selection, which must fit. Returns null if no selection fits or none was found.
std::optional<Chosen> choose(const std::vector<std::vector<Choice>>& groups, const std::vector<double>& capacities,
                             const std::vector<size_t>& start, const Limits& limits = {});

}  // namespace elinvar::pool
