#pragma once
// What is known of the speed of a pool's jobs: what was measured of each, fitted (speed.h), from a warm start where a
// job before it computed the same network on the same kinds.
#include <map>
#include <memory>

#include "tools/pool/speed.h"
#include "tools/pool/store.h"

namespace elinvar::pool {

class Knowledge {
 public:
  explicit Knowledge(const Store& store) : store_(store) {}
  std::shared_ptr<const Speed> of(const JobRecord& job, const std::vector<Measurement>& measured);

  // Whether two jobs are as fast as each other on the same devices: all that was asked for is the same, but for names,
  // seeds and lengths that were set at submission.
  static bool alike(const JobRecord& a, const JobRecord& b);

 private:
  std::shared_ptr<const FittedSpeed> similar(const JobRecord& job);
  const Store& store_;
  std::map<Id, std::shared_ptr<const FittedSpeed>> similar_;  // found when a job is asked about for the first time
};

}  // namespace elinvar::pool
