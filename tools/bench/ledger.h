#pragma once
// What the ledger of a run costs beside a step (elastic/LEDGER.md): the digests of batch, a leaf, the reduced gradient
// and the state, and the text of the lines.
#include "tools/bench/report.h"

namespace elinvar::bench {

// One virtual rank, and the settings' defaults: that is the most that the ledger can cost beside a leaf.
void run_ledger(const std::string& model, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
