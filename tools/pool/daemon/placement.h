#pragma once
// Decides which slots are usable now, from the state of machines, hosts and processes. Holds references to these and no
// state of its own.
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

  bool usable(Id slot, double now) const;  // a plan may assign it
  bool usable(const std::vector<Id>& slots, double now) const;
  // Whether a worker of the job may be started on these slots now. A host on which other jobs' workers run is not at
  // fault for failed starts: only jobs whose own workers failed to start there wait.
  bool free_for(Id job, const std::vector<Id>& slots, double now) const;
  bool stays(const ProcessRecord& process) const;    // it is not leaving, and all its slots stay
  double until(const ProcessRecord& process) const;  // when the first of its slots goes
  // Returns the host and the kind of a worker's slots; "" if they are gone.
  std::string host_of(const ProcessRecord& worker) const;
  std::string kind_of(const ProcessRecord& worker) const;

  // Returns the job's workers by kind if all of them are registered and none is leaving.
  std::optional<Allocation> settled_allocation(Id job) const;
  // Counts the job's workers on a kind, registered or not.
  int workers_of_kind(Id job, const std::string& kind) const;

 private:
  bool has_registered_worker(const std::string& host) const;
  const Inventory& inventory_;
  const HostBackoff& backoff_;
  const ProcessTable& processes_;
};

}  // namespace elinvar::pool
