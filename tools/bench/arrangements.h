#pragma once
// Measures time and memory of a sharded optimizer state (ZeRO, `train run --arrangement`): real jobs of two or more
// workers of one thread each, under each arrangement. Jobs alternate: each round measures some steps of every
// arrangement.
//
// For each arrangement: seconds of a step; MB that go over the loopback interface in a step, of all processes of the
// machine, and what the protocol predicts; and peak resident set of a worker (the largest one), compared with that
// without ZeRO. State per worker is predicted as P + k P r / N numbers: P parameters, of which the optimizer keeps k
// numbers each, with r copies on N workers.
//
// Then a pipeline of workers beside one of them alone. For gpt2 also tensor parallelism: workers that compute each
// gradient together, beside one worker of as many threads, and beside workers that compute gradients of their own. Then
// `slower_percent` is of the time of a gradient. At last predictions are compared with jobs
// (tools/bench/predictions.h).
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> arrangement_sections();  // "zero", "pipeline", "tensor", "predicted"

// `network` is one of job_networks() (tools/bench/job_configs.h); `rounds` are measured after one that is not.
void run_arrangements(const std::string& section, const std::string& network, int workers, int rounds, Report& report);

}  // namespace elinvar::bench
