#pragma once
// Predictions of `train run --dry-run` (elastic/ARRANGEMENT.md, "Choosing an arrangement") compared with real jobs: one
// worker of one thread and of several, and workers of one thread in arrangements of each kind.
#include <string>

#include "tools/bench/report.h"

namespace elinvar::bench {

// Adds a row for each arrangement: the measured step, the predicted one, and its error in percent of the measured one;
// and the same of the peak resident set of a worker, in MB. Then prints the median error, and for each number of copies
// the arrangement that `--arrangement auto` takes, and by how much its step is slower than that of the best measured
// one. Dry runs and jobs run one after another on this machine, which should have nothing else to do.
void compare_predictions(const std::string& network, int workers, int rounds, Report& report);

}  // namespace elinvar::bench
