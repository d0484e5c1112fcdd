#pragma once
// The coordinators and workers that this pool has started and that have not ended. A process is recorded in the store
// before it is started, and its handle afterwards: if the daemon is killed in between, the next one finds the process
// by its command line. Pointers stay valid until the next poll().
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/pool/daemon/world.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

class ProcessTable {
 public:
  ProcessTable(Store& store, World& world) : store_(store), world_(world) {}

  // Reads the table from the store. Limits each time to leave to `grace` seconds from now, in case the clock was set
  // back.
  void load(double now, double grace);
  // Records which processes have ended, calls `ended` for each, and removes them. Kills those whose time to leave is
  // over or whose slots are gone.
  void poll(double now, const std::function<bool(Id slot)>& exists,
            const std::function<void(const ProcessRecord&)>& ended);

  using Command = std::function<std::vector<std::string>(const ProcessRecord&)>;
  // Starts a process with the words that `command` returns for its record. Returns "", or why it could not be started;
  // the process is then recorded as ended.
  std::string launch(ProcessRecord process, const Command& command, double now);
  // Tells the process to leave by the given time, or earlier if an earlier time was set; it is killed if it stays.
  void leave(ProcessRecord& process, double now, double by);
  // Sets the time by which all processes of the job must leave; replaces times set before.
  void stop(Id job, double now, double by);
  void registered(ProcessRecord& worker);  // its job has accepted it

  std::vector<ProcessRecord*> workers_of(Id job);
  std::vector<const ProcessRecord*> workers_of(Id job) const;
  ProcessRecord* coordinator_of(Id job);  // null: none
  std::vector<ProcessRecord*> all_of(Id job);
  bool occupied(Id slot) const;
  // Whether a registered worker runs on a slot for which `on` holds.
  bool has_registered_worker(const std::function<bool(Id slot)>& on) const;

  std::filesystem::path log_of(const ProcessRecord& process) const;

 private:
  Store& store_;
  World& world_;
  std::map<Id, ProcessRecord> processes_;
};

}  // namespace elinvar::pool
