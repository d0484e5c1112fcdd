#pragma once
// A real job in an arrangement, of which `bench arrangements` measures rounds of some steps.
#include <string>
#include <vector>

#include "elastic/step/arrangement.h"
#include "tools/bench/job_configs.h"

namespace elinvar::bench {

struct ArrangementJob {
  std::string name;
  Arrangement arrangement = {};
  int workers = 1, threads = 1;  // of each worker; workers of one thread are bound to a core each
  Sizes sizes = {};
  std::vector<std::string> more = {};  // options of `train run`
  // For each round: median seconds of a step; MB that go over the loopback interface in a step, of all processes of the
  // machine; and MB of the peak resident set of the largest worker.
  std::vector<double> steps = {}, megabytes = {}, peaks = {};

  // Measures a round of `steps` steps, after two that are not measured. Returns the number of parameters.
  int64_t measure(const std::string& network, size_t steps = 4);
};

}  // namespace elinvar::bench
