#pragma once
// The cost of an audit (elastic/PROTOCOL.md). A real job of two workers with one thread and a core each, and four
// virtual ranks, trains a network of `bench models` and audits every other update. Audited steps are compared with
// their neighbours: the auditor computes three rank gradients while the other worker computes two. In processor time of
// both workers, which is what counts on a busy machine, an audit adds one rank gradient to four.
#include <string>

#include "tools/bench/report.h"

namespace elinvar::bench {

void run_audit(const std::string& network, int repeat, Report& report);

}  // namespace elinvar::bench
