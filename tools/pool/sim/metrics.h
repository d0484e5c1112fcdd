#pragma once
// The results of a simulation in numbers, and their spread over seeds.
#include <string>
#include <vector>

#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {

struct Metric {
  const char* name;
  const char* unit;
  enum Better { kLess, kMore, kNeither } better;  // kNeither: not compared with a baseline
  double (*of)(const Outcome&);
};
const std::vector<Metric>& metrics();

// Mean and sample standard deviation over seeds.
struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(const std::vector<double>& values);

// Returns by what factor one series is better than another, seed by seed: the baseline's value divided by ours if less
// is better, else ours divided by the baseline's.
Spread times_better(const std::vector<double>& ours, const std::vector<double>& baseline, bool more_is_better);

}  // namespace elinvar::pool
