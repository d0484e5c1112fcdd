#pragma once
// Where machines come from. A source lists its machines at this moment and knows how to run a program on them; it knows
// nothing of jobs. Machines may come and go at any time: a machine that the source no longer lists is gone.
//
//   local   slots of this host
//   ssh     a list of hosts, reached by ssh with keys (BatchMode). They see the pool's directory under the same path,
//           or at least each job's key in it
//   slurm   idle nodes of a Slurm cluster, each taken by a short allocation in a partition whose jobs are preempted for
//           others (PreemptMode=CANCEL, GraceTime). Slurm then moves the allocation's end to now plus the grace time,
//           which becomes `until`; a node that is idle again is taken again. The directory is on a file system that the
//           nodes share.
#include <memory>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct SourceOptions {
  std::string name = {};  // name of its table in pool.toml
  std::string source = "local";
  std::vector<std::string> hosts = {};  // ssh: host names as ssh accepts them
  std::string ssh_config = {};          // ssh: a configuration file (ports, users, keys); "": the user's own
  // Slots of each host. 0 means, with GPUs: as many as Slurm lists for the node or `train devices` finds on this host;
  // without: one with Slurm, and on this host as many as CPUs and threads allow. With ssh it means one.
  int slots = 0;
  int threads = 0;                        // threads per slot; 0: the host's CPUs divided by its slots, with ssh 1
  std::string device = "cpu";             // or cuda: each slot has a GPU of its own
  std::string kind = {};                  // default: from device and threads, for example "cpu-4"
  std::string program = {};               // path of train on those hosts; default: as on this host
  std::string partition = {};             // slurm: the partition of the allocations; required
  int minutes = 60;                       // slurm: the longest time of an allocation
  int most = 0;                           // slurm: the most nodes at once; 0: all
  std::string job_name = "elinvar-pool";  // slurm: of the allocations; two pools of one user need two names
  std::string commands = {};              // slurm: folder of sinfo and the other commands; "": in PATH
};

struct Machine {
  std::string host = {};   // unique in its source
  std::string lease = {};  // identifies this stay, for example an allocation's number; "": permanent
  std::string kind = {}, device = {};
  int slots = 1, threads = 1;
  double until = kNever;  // when it goes
};
// Returns the argument of `train join --device` for each slot: "cpu", or the slot's own GPU, "cuda:0". With Slurm, GPUs
// are numbered within the allocation.
std::vector<std::string> devices_of(const Machine& machine);

class Source {
 public:
  virtual ~Source() = default;
  // Returns the machines that are there now. `wanted`: how many more slots could be used. Called about once a second;
  // must return quickly. After a Failure the previous answer counts.
  virtual std::vector<Machine> machines(double now, int wanted) = 0;
  // Returns the command to run here so that `words` run on the machine; the first word stands for the train program.
  // The remote program ends when the command ends, and the command returns its exit code.
  virtual std::vector<std::string> command(const Machine& machine, std::vector<std::string> words) const = 0;
  // Gives back a machine on which nothing runs. Returns false if it stays nevertheless.
  virtual bool release(const Machine&) { return false; }
  virtual void want_nothing() {}  // cancels requests for machines that have not come yet
  virtual bool this_host() const { return false; }
};

// `program`: train on this host. Throws UsageError for options that make no sense.
std::unique_ptr<Source> make_source(const SourceOptions& options, const std::string& program);

}  // namespace elinvar::pool
