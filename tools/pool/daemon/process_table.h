#pragma once
// The coordinators and workers that this pool has started and that have not ended, as they are on file. A process is
// put on file before it is started, and its handle after that: a daemon that is killed in between is followed by one
// that finds the process by its command line. Pointers stay valid until the next poll().
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

  // Reads what is on file. Nobody stays for longer than `grace` seconds, also where the clock was set back.
  void load(double now, double grace);
  // Notes which processes have ended, calls `ended` for each of them, and removes them; kills those whose time to leave
  // is over or whose slots are gone.
  void poll(double now, const std::function<bool(Id slot)>& exists,
            const std::function<void(const ProcessRecord&)>& ended);

  using Command = std::function<std::vector<std::string>(const ProcessRecord&)>;
  // Starts a process with the words that `command` returns, given its record with its number. Returns "", or why it
  // could not be started: then it has ended.
  std::string launch(ProcessRecord process, const Command& command, double now);
  // The process has to leave by then, or sooner if it was told so before; it is killed if it stays.
  void leave(ProcessRecord& process, double now, double by);
  // All processes of the job have to leave by then, whatever they were told before.
  void stop(Id job, double now, double by);
  void registered(ProcessRecord& worker);  // its job knows it

  std::vector<ProcessRecord*> workers_of(Id job);
  std::vector<const ProcessRecord*> workers_of(Id job) const;
  ProcessRecord* coordinator_of(Id job);  // null: there is none
  std::vector<ProcessRecord*> all_of(Id job);
  bool occupied(Id slot) const;
  // Whether a worker that its job knows runs on such a slot.
  bool has_registered_worker(const std::function<bool(Id slot)>& on) const;

  std::filesystem::path log_of(const ProcessRecord& process) const;

 private:
  Store& store_;
  World& world_;
  std::map<Id, ProcessRecord> processes_;
};

}  // namespace elinvar::pool
