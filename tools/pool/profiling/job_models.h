#pragma once
// What is known of a pool's jobs: their speed, as it was measured of each, fitted (speed.h), and what they do besides;
// from a warm start where a job before it computed the same network.
#include <map>
#include <memory>

#include "tools/pool/profiling/speed.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

class JobModels {
 public:
  explicit JobModels(const Store& store) : store_(store) {}
  std::shared_ptr<const Speed> of(const JobRecord& job, const std::vector<Measurement>& measured);
  Overheads overheads(const JobRecord& job);

  // Whether two jobs are as fast as each other on the same devices: all that was asked for is the same, but for names,
  // seeds and lengths that were set at submission.
  static bool alike(const JobRecord& a, const JobRecord& b);

 private:
  struct Similar {  // nothing where it is not known
    std::shared_ptr<const FittedSpeed> speed;
    double validation = 0;
    RescaleCosts costs = kUnmeasured;
  };
  const Similar& similar(const JobRecord& job);
  const Store& store_;
  std::map<Id, Similar> similar_;  // found when a job is asked about for the first time
};

}  // namespace elinvar::pool
