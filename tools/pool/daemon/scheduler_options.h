#pragma once
// How a pool is scheduled. All times are in seconds.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"
#include "tools/pool/store/job_records.h"

namespace elinvar::pool {

struct SchedulerOptions {
  Policy policy;
  // Returns the speed model of a job, given its measurements.
  std::function<std::shared_ptr<const Speed>(const JobRecord&, const std::vector<Measurement>&)> speed;
  // Returns the overheads of a job; empty: the defaults, and the job's own validations.
  std::function<Overheads(const JobRecord&)> overheads = {};
  std::string train = "train";  // the program on this host
  std::string advertise = {};   // the name under which other hosts reach this one; "": jobs stay on this host
  double grace = 20;            // for a worker to leave before it is killed
  double takeover = 20;         // for a worker to replace a dead coordinator
  double replan = 10;           // the longest time between two plans
  double idle = 120;            // after which an unused machine is given back
  int failures = 5;             // in a row, after which a job has failed
  double patience = 1800, turn = 300, horizon = 120;  // of the Pool (plan/state.h)
};

}  // namespace elinvar::pool
