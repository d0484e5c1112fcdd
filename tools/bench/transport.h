#pragma once
// The transport between two processes of this machine.
#include <string>

#include "tools/bench/report.h"

namespace elinvar::bench {

// Measures round trips of a small message, 4 MB messages in one direction, and the delay until the loss of a killed
// process is reported; over tcp and ipc, and encrypted.
void run_transport(int repeat, Report& report);

// Runs the second process: prints its inbox's endpoint, answers requests, and ends when the requester is lost. `key`: a
// folder with a job's key, or empty.
int answer_transport(const std::string& listen, const std::string& key);

}  // namespace elinvar::bench
