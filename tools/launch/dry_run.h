#pragma once
// `train run --dry-run` and `--arrangement auto`: which arrangements a job could have, how long their steps would take
// and how much memory, predicted from measurements in one process (elastic/ARRANGEMENT.md, "Choosing an arrangement").
#include <string>

#include "tools/cli/device_options.h"
#include "tools/config/config.h"
#include "tools/training/arrangement_estimate.h"

namespace elinvar {

struct DryRunOptions {
  Cluster cluster;       // memory 0: an equal share of this machine's
  DeviceOptions device;  // of the process that measures
  bool json = false;
};

// Prints the arrangements of a job. Returns 0, or 1 if none fits.
int dry_run(const Config& config, const DryRunOptions& options);

// Returns the fastest arrangement that fits, and prints which and why. Measures in a child process, so call it while
// this one has no other threads. Throws UsageError, with the least memory that would do, if none fits.
ArrangementEstimate choose_arrangement(const Config& config, const DryRunOptions& options);

}  // namespace elinvar
