#pragma once
// One choice from each group, within capacities, of the greatest utility: a multiple-choice knapsack, solved as a
// mixed-integer program by COIN-OR CBC; unless the selection to begin with is good enough already, which a bound by
// Lagrange's relaxation tells within a millisecond or two.
#include <optional>
#include <utility>
#include <vector>

namespace elinvar::pool {

struct Choice {
  double utility = 0;
  std::vector<std::pair<int, double>> uses;  // of which capacity how much
};

struct Chosen {
  std::vector<size_t> of;  // one choice for each group
  double utility = 0;      // theirs together
  double bound = 0;        // what no selection can pass
};

struct Limits {
  double seconds = 1;
  int nodes = 20000;   // of the search; with this alone the result does not depend on the machine's speed
  double gap = 0.001;  // good enough if so near to the bound
};

// `start`, if not empty, is a selection to begin with; it must fit. Nothing if no selection fits or none was found.
std::optional<Chosen> choose(const std::vector<std::vector<Choice>>& groups, const std::vector<double>& capacities,
                             const std::vector<size_t>& start, const Limits& limits = {});

}  // namespace elinvar::pool
