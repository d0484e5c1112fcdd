#pragma once
// The cost of a run's ledger compared with a step (elastic/LEDGER.md): the digests of batch, a leaf, the reduced
// gradient and the state, and the text of the lines.
#include "tools/bench/report.h"

namespace elinvar::bench {

// With one virtual rank and the settings' defaults: then no leaf is digested, with more one of them in each step.
void run_ledger(const std::string& model, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
