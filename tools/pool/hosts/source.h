#pragma once
// Where machines come from. A source says which there are at this moment and how a program is run on one of them; it
// knows nothing of jobs. Machines may come and go at any time: what a source does not name any more is gone.
//
//   local   slots of this host
//   ssh     a list of hosts, reached by ssh with keys (BatchMode); they see the pool's directory under its own path, or
//           at least each job's key in it
//   slurm   idle nodes of a Slurm cluster, each harvested by a short allocation in a partition whose jobs give way to
//           others (PreemptMode=CANCEL, GraceTime). Slurm then moves the allocation's end to the present plus the grace
//           time, and that is `until`; a node that is idle again is harvested again. The directory is on a file system
//           that the nodes share.
#include <memory>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct SourceOptions {
  std::string name = {};  // its table in pool.toml
  std::string source = "local";
  std::vector<std::string> hosts = {};  // ssh: as ssh takes them
  std::string ssh_config = {};          // ssh: a configuration of ssh (ports, users, keys); "": the user's own
  // Slots of each host. 0: ssh: one; with GPUs: as many as Slurm says that a node has, local: as `train devices` says
  // that there are; else Slurm: one, local: as many as CPUs and threads allow.
  int slots = 0;
  int threads = 0;                        // of each slot; 0: local and Slurm: the host's CPUs over its slots; ssh: 1
  std::string device = "cpu";             // or cuda: each slot is a GPU of its own
  std::string kind = {};                  // default: device and threads, as "cpu-4"
  std::string program = {};               // train on those hosts; default: as here
  std::string partition = {};             // slurm: where the allocations are made; required
  int minutes = 60;                       // slurm: for so long at most
  int most = 0;                           // slurm: so many nodes at once; 0: all
  std::string job_name = "elinvar-pool";  // slurm: of the allocations. Two pools of one user need two names
  std::string commands = {};              // slurm: where sinfo and its kin are; "": in PATH
};

struct Machine {
  std::string host = {};   // unique in its source
  std::string lease = {};  // for how it is there this time: an allocation's number; "": it always is
  std::string kind = {}, device = {};
  int slots = 1, threads = 1;
  double until = kNever;  // gone by then
};
// The argument of `train join --device` for each slot: "cpu", or the slot's own GPU, "cuda:0". With Slurm, GPUs are
// numbered within the allocation.
std::vector<std::string> devices_of(const Machine& machine);

class Source {
 public:
  virtual ~Source() = default;
  // Those that are there now. `wanted`: so many more slots than there are would be used. Called every second or so, and
  // returns in a moment; a Failure is no news.
  virtual std::vector<Machine> machines(double now, int wanted) = 0;
  // What to run here so that `words`, of which the first stands for the train program, run there, end when this ends,
  // and hand their exit code on.
  virtual std::vector<std::string> command(const Machine& machine, std::vector<std::string> words) const = 0;
  // Nothing runs there any more, and nobody wants it. False: it stays nevertheless.
  virtual bool release(const Machine&) { return false; }
  virtual void want_nothing() {}  // what was asked for and has not come need not come any more
  virtual bool this_host() const { return false; }
};

// `program`: train on this host. UsageError for options that make no sense.
std::unique_ptr<Source> make_source(const SourceOptions& options, const std::string& program);

}  // namespace elinvar::pool
