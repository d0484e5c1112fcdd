#pragma once
// How the time of a step grows with the work; ideally the rate stays constant. Also the cost of several virtual ranks
// on one worker, compared with the same gradients without the additions.
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> growth_names();  // batch, width, depth, length, ranks
void run_growth(const std::string& name, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
