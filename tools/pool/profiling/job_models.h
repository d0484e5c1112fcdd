#pragma once
// The models of a pool's jobs: a speed model fitted to the measurements of each job (speed.h), and its overheads. A job
// starts warm from an earlier job that computed the same network.
#include <map>
#include <memory>

#include "tools/pool/profiling/speed.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

class JobModels {
 public:
  explicit JobModels(const Store& store) : store_(store) {}
  // Returns the speed model of a job; `measured`: its own measurements.
  std::shared_ptr<const Speed> of(const JobRecord& job, const std::vector<Measurement>& measured);
  Overheads overheads(const JobRecord& job);

  // Whether two jobs are equally fast on the same devices: their submissions differ at most in names, seeds and
  // lengths.
  static bool alike(const JobRecord& a, const JobRecord& b);

 private:
  struct Similar {  // from earlier jobs; empty if nothing is known
    std::shared_ptr<const FittedSpeed> speed;
    double validation = 0;
    RescaleCosts costs = kUnmeasured;
  };
  const Similar& similar(const JobRecord& job);
  const Store& store_;
  std::map<Id, Similar> similar_;  // computed at the first request for the job
};

}  // namespace elinvar::pool
