#pragma once
// Measures, in one process, what a configuration's network needs in a step (tools/training/arrangement_estimate.h).
// The network is never in memory as a whole, and has no state.
#include "tools/config/config.h"
#include "tools/training/arrangement_estimate.h"

namespace elinvar {

// What is measured, and how far it is scaled.
struct MeasuredNetwork {
  NetworkNeeds needs;
  int64_t parameters = 0;  // elements
  int64_t samples = 0;     // of a rank gradient
  int64_t measured = 0;    // of them, with which the segments ran
};

// Computes on the CPU with this process's threads. A rank gradient that would take long is scaled up from fewer
// samples. `process`: the bytes of the program itself. Throws UsageError unless the network is a list of segments
// (nn/segments.h).
MeasuredNetwork measure_network(const Config& config, int64_t process);

}  // namespace elinvar
