#pragma once
// What an audit costs (elastic/PROTOCOL.md): a real job of two workers with one thread and a core each, and four
// virtual ranks, that trains a network of `bench models` and audits every other update. So audited steps are compared
// with their neighbours: the auditor computes three leaves in the time that the other needs for two. Of the work of
// both, processor time, it is a leaf of four: what counts where the machine does other things, too.
#include <string>

#include "tools/bench/report.h"

namespace elinvar::bench {

void run_audit(const std::string& network, int repeat, Report& report);

}  // namespace elinvar::bench
