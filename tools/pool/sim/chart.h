#pragma once
// The outcomes of an experiment, and a page of bar charts of them.
#include <string>
#include <vector>

#include "tools/pool/sim/metrics.h"
#include "tools/pool/sim/scenarios.h"

namespace elinvar::pool {

struct Results {
  const Scenario* scenario = nullptr;
  std::vector<std::vector<Outcome>> outcomes;  // by contestant and seed

  std::vector<double> values(size_t contestant, size_t metric) const;
  Spread spread(size_t contestant, size_t metric) const;
  Spread better(size_t contestant, size_t metric) const;  // than the baseline; 0 for metrics that are not compared
};

// Returns one self-contained HTML file: a row of bars for each metric, with a whisker of one standard deviation.
std::string chart_page(const Results& results);

}  // namespace elinvar::pool
