#pragma once
// Records hosts where workers fail to start: each failure in a row doubles the time until the next worker is started
// there. Times are seconds on the scheduler's clock.
#include <map>
#include <set>
#include <string>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

class HostBackoff {
 public:
  // Records that a worker of the job failed to start on the host. Returns the seconds until another one may be started
  // there.
  double failed(const std::string& host, Id job, double now);
  // Forgets the failures of the host, since a worker on it has registered with its job.
  void recovered(const std::string& host) { hosts_.erase(host); }

  bool waiting(const std::string& host, double now) const;   // the host is backing off
  bool excluded(const std::string& host, double now) const;  // it is backing off after several failures: plans omit it
  bool failed_for(const std::string& host, Id job) const;    // a worker of this job was among the failures

  void clear() { hosts_.clear(); }

 private:
  struct Host {
    int failures = 0;  // in a row
    double until = 0;
    std::set<Id> jobs;
  };
  std::map<std::string, Host> hosts_;
};

}  // namespace elinvar::pool
