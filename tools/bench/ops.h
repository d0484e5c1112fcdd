#pragma once
// Single operations at the sizes that training meets.
#include "tools/bench/report.h"

namespace elinvar::bench {

void run_ops(const std::string& filter, int repeat, Report& report);  // the cases whose name contains `filter`

}  // namespace elinvar::bench
