#pragma once
// How the time of a step grows with the work: the rate should stay what it is. And what virtual ranks cost that one
// worker computes one after another, beside the same gradients without adding them up.
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> growth_names();  // batch, width, depth, length, ranks
void run_growth(const std::string& name, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
