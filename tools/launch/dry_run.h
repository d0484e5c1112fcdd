#pragma once
// `train run --dry-run` and `--arrangement auto`: which arrangements a job could have, how long their steps would take
// and how much memory, predicted from measurements on this machine (elastic/ARRANGEMENT.md, "Choosing an arrangement").
#include <optional>
#include <string>

#include "comm/zmq_transport.h"
#include "elastic/step/arrangement_forecasts.h"
#include "tools/cli/device_options.h"
#include "tools/config/config.h"
#include "tools/training/arrangement_estimate.h"

namespace elinvar {

struct DryRunOptions {
  int workers = 1;
  int64_t memory = 0;                        // bytes of a worker's device; 0: a GPU's, or a share of this machine's
  std::vector<int> copies = {1, 2};          // Arrangement::copies to compare
  std::optional<double> latency, bandwidth;  // of links (Cluster); those that are not given are measured
  ZmqOptions transport;                      // of the job
  DeviceOptions device;                      // of a worker, with its number of threads; a GPU need not be here
  bool json = false;
};

// Both functions measure in child processes. Call them while this process has no other threads and has not used a
// GPU's driver, because a driver that was used before a fork does not work in the child.

// Prints the arrangements of a job. Returns 0, or 1 if none fits.
int dry_run(const Config& config, const DryRunOptions& options);

struct ChosenArrangement {
  Arrangement arrangement;
  ArrangementForecasts forecasts;  // of up to twice as many workers
};

// Returns the fastest arrangement that fits, and prints which and why. Throws UsageError, with the least memory that
// would do, if none fits; and if the device is not here.
ChosenArrangement choose_arrangement(const Config& config, const DryRunOptions& options);

}  // namespace elinvar
