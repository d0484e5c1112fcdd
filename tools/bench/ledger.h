#pragma once
// The cost of a run's ledger compared with a step (elastic/LEDGER.md): the digests of the batch, a rank gradient, the
// reduced gradient and the state, and the text of the lines.
#include "tools/bench/report.h"

namespace elinvar::bench {

// Uses one virtual rank and the default settings, with which no rank gradient is digested; with more virtual ranks one
// is digested in each step.
void run_ledger(const std::string& model, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
