#pragma once
// The transport between two processes of this machine.
#include <string>

#include "tools/bench/report.h"

namespace elinvar::bench {

// Round trips of a small message, 4 MB messages one way, and how long the loss of a killed process takes to be told:
// over tcp and ipc, and encrypted.
void run_transport(int repeat, Report& report);

// The other process: prints its inbox's endpoint, answers what it is asked, and ends when the one that asked is lost.
// `key` is a folder with a job's key, or empty.
int answer_transport(const std::string& listen, const std::string& key);

}  // namespace elinvar::bench
