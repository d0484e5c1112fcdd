#pragma once
// Which slots can be used now, by what is known of machines, hosts and processes together. Holds references to these
// and no state of its own.
#include <optional>
#include <string>
#include <vector>

#include "tools/pool/daemon/host_backoff.h"
#include "tools/pool/daemon/inventory.h"
#include "tools/pool/daemon/process_table.h"

namespace elinvar::pool {

class Placement {
 public:
  Placement(const Inventory& inventory, const HostBackoff& backoff, const ProcessTable& processes)
      : inventory_(inventory), backoff_(backoff), processes_(processes) {}

  bool usable(Id slot, double now) const;  // a plan may contain it
  bool usable(const std::vector<Id>& slots, double now) const;
  // Whether a worker of the job may be started on these slots now. Where workers of other jobs run, a host is not at
  // fault: there only jobs whose own workers failed to start have to wait.
  bool free_for(Id job, const std::vector<Id>& slots, double now) const;
  bool stays(const ProcessRecord& process) const;    // nobody and nothing has told it to leave
  double until(const ProcessRecord& process) const;  // the first of its slots is gone by then
  // The host and the kind of a worker's slots; "" if they are gone.
  std::string host_of(const ProcessRecord& worker) const;
  std::string kind_of(const ProcessRecord& worker) const;

  // The workers of a job by kind, if the job knows all of them and none of them is leaving.
  std::optional<Allocation> settled_allocation(Id job) const;
  // All workers of the job that run on a kind, whether they are known or not.
  int workers_of_kind(Id job, const std::string& kind) const;

 private:
  bool has_registered_worker(const std::string& host) const;
  const Inventory& inventory_;
  const HostBackoff& backoff_;
  const ProcessTable& processes_;
};

}  // namespace elinvar::pool
