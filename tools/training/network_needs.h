#pragma once
// Measures, in one process, what a configuration's network needs in a step (tools/training/arrangement_estimate.h).
// The network is never in memory as a whole, and has no state.
#include <functional>
#include <optional>

#include "nn/offload.h"
#include "nn/segments.h"
#include "tools/config/config.h"
#include "tools/training/arrangement_estimate.h"

namespace elinvar {

// The needs that were measured, and how far they are scaled.
struct MeasuredNetwork {
  NetworkNeeds needs;
  int64_t parameters = 0;  // elements
  int64_t samples = 0;     // of a rank gradient
  int64_t measured = 0;    // of them, with which the segments ran
};

struct NeedsOptions {
  int64_t process = 0;   // the bytes of the program itself
  Offload offload = {};  // where workers keep the optimizer's state
  // The device that measures, as the workers' devices compute; and, if those are GPUs, what is known of them. A CPU
  // that measures for GPUs tells bytes, but no times.
  Device device = {};
  std::optional<GpuNeeds> gpu = {};
  // Several processes may measure at the same time (SegmentTrials::greatest).
  std::function<double(double)> greatest = [](double value) { return value; };
};

// A CPU computes with this process's threads. A rank gradient that would take long is scaled up from fewer samples.
// Throws UsageError unless the network is a list of segments (nn/segments.h).
MeasuredNetwork measure_network(const Config& config, const NeedsOptions& options);

// Returns NetworkNeeds::first_readers.
std::vector<int> first_readers_of(const SegmentedNetwork& network);

}  // namespace elinvar
