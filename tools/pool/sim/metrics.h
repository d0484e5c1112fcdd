#pragma once
// What a simulation came to, in numbers; and the same over many seeds.
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

// Mean and standard deviation (of the sample) over seeds.
struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(const std::vector<double>& values);

// By how much one series is better than another, seed by seed: the ratio of a baseline's values to ours where less is
// better, of ours to the baseline's where more is.
Spread times_better(const std::vector<double>& ours, const std::vector<double>& baseline, bool more_is_better);

}  // namespace elinvar::pool
