#pragma once
// What elasticity costs: real jobs (`train run`, `train join`, kill -9) on this machine, watched from outside.
//
// The states are those of whole networks: resnet20 (2 MB with momentum), resnet50 (205 MB with momentum) and gpt2
// (124 million parameters, 1.5 GB with AdamW). So that a change can be timed often, images are 64 pixels wide, texts 16
// tokens long and batches 4 samples: steps are short, states whole. `overhead` alone trains batches of a usual size.
// Every worker has one thread and, but for checkpoints, a core of its own as long as there are enough.
//
//   join        a second worker joins one that trains, and leaves again on SIGTERM
//               others wait: by how much the longest step until it takes part was longer than usual
//               slower: by how much steps took longer from its first word to the first step that it takes part in
//               copy waits: how long the loop stood still for a copy of the state (event "fed")
//               leaves: from the signal to the end of the process; and in steps
//   death       one of two workers is killed: from the kill to the new generation, when the survivor goes on, and to
//               the end of the step that was cut short, with the leaves that are computed again
//   hang        one of two workers is stopped, and silent from then on; to the new generation
//   checkpoint  the loop waits: how long it stood still; longer: the step in which the state is copied beside others;
//               lost: of all steps until the checkpoint is on the disk; the worker uses all cores
//   restart     what all this replaces: stop with a checkpoint, start again with --resume, to the first new step; the
//               time of that step is taken off
//   overhead    processor time of the threads that keep a job together: per mille of the wall time, and beside that of
//               the other threads (work) a step; of one worker, who has nobody to talk to, and of two (data plane
//               too); how much of a step two workers spend on adding up gradients, waiting for each other included
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> elastic_sections();
std::vector<std::string> elastic_networks();

void run_elastic(const std::string& section, const std::string& network, int repeat, Report& report);

}  // namespace elinvar::bench
