#pragma once
// The cost of elasticity: real jobs (`train run`, `train join`, kill -9) on this machine, observed from outside.
//
// The states are those of whole networks: resnet20 (2 MB with momentum), resnet50 (205 MB with momentum) and gpt2 (124
// million parameters, 1.5 GB with AdamW). To repeat each change often, images are 64 pixels wide, texts 16 tokens long
// and batches 4 samples: steps are short, states complete. Only `overhead` trains batches of usual size. Each worker
// has one thread and, except for checkpoints, a core of its own as long as there are enough.
//
//   join        a second worker joins one that trains, and leaves again on SIGTERM
//               others wait: excess of the longest step until it takes part
//               slower: how much longer steps take from its first message to its first step
//               copy waits: how long the loop waited for a copy of the state (event "fed")
//               leaves: from the signal to the end of the process; also in steps
//   death       one of two workers is killed: from the kill to the new generation, when the survivor continues, and to
//               the end of the interrupted step, including the repeated rank gradients
//   hang        one of two workers is stopped and therefore silent: to the new generation
//   checkpoint  the loop waits: how long it waited; longer: excess of the step during which the state is copied; lost:
//               excess of all steps until the checkpoint is on disk; the worker uses all cores
//   restart     what elasticity replaces: stop with a checkpoint, start again with --resume, to the end of the first
//               new step, minus the time of that step
//   overhead    processor time of the threads that run the job, per mille of wall time, and of the threads that compute
//               (work), per step; with one worker, which has no peers, and with two (including the data plane); the
//               part of a step that two workers spend on adding up gradients, including waiting for each other
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> elastic_sections();

// `network` is one of job_networks() (tools/bench/job_configs.h); `options` are more options of `train run`.
void run_elastic(const std::string& section, const std::string& network, const std::vector<std::string>& options,
                 int repeat, Report& report);

}  // namespace elinvar::bench
