#pragma once
// Simulates a whole elastic job in one thread with its own clock: the real decision code of coordinator and members
// (elastic/protocol/coordinator.h, elastic/protocol/member.h), real reductions of tiny tensors, and a network, a disk
// and faults that a seed determines. A schedule consists of joins, drains, kills, stalls, cuts and dying coordinators.
// The simulator checks the protocol's invariants throughout, and that the run ends like an undisturbed one.
#include <cstdint>
#include <string>
#include <vector>

namespace elinvar {

struct Schedule {
  uint64_t seed = 0;
  int vranks = 4;
  int64_t steps = 8;
  int initial_workers = 2;
  int min_workers = 1;
  int faults = 4;
  // With adaptive scaling the run has as many samples as `steps` batches of the first size.
  bool adaptive = false;
  // Updates between audits, and the number of bits that flip in audited data. A lasting fault damages a worker's state,
  // or each audited rank gradient that the worker computes.
  int64_t audit_every = 0;
  int flips = 0;
  bool lasting_faults = false;
  // ZeRO's stage, and the number of workers that keep each bucket.
  int zero = 0, copies = 2;
  bool sums = false;  // an update needs sums over all parameters
  // Tensor parallelism: the most members of a model replica, which compute rank gradients together if it is above 1,
  // and the number of virtual shards, 2 to 4.
  int tp = 1, shards = 4;
  // Percentage of workers that are GPUs able to be in a group; most of them have the same library.
  int gpus = 0;
  std::vector<double> gradient_seconds = {};  // times of the first workers; other workers' times are random
  double hang_at = -1;                        // time at which a worker hangs; -1: never
  // 1: the coordinator dies so early that there may be no generation yet, and the run is not resumed; a worker may stop
  // then. 2: the same happens again after all processes were killed and the run continues.
  int orphaned = 0;
  bool kills = true, stalls = true, cuts = true, hangs = true, drains = true, joins = true, coordinator_dies = true,
       stops = true, drops = true;
};

struct SimulationResult {
  std::string violation;  // the violated invariant, or ""
  double seconds = 0;     // simulated time
  int64_t messages = 0;
  int generations = 0;
  int batch_changes = 0;           // changes of the batch that took effect
  int opened = 0;                  // rank gradients put tensor by tensor
  int interrupted = 0;             // tensors put after a fence interrupted the rank gradient
  int killed_beside = 0;           // members killed to cause such an interruption
  int lost_open = 0;               // messages lost while a rank gradient was open
  int flips = 0, caught = 0;       // bits that flipped, and workers evicted for them
  int tried = 0;                   // trials because claims differed
  int replays = 0, undecided = 0;  // replays of a worker from a checkpoint, and runs that ended undecided
  int abandoned = 0;               // workers that left without a coordinator although they saw the run directory
  int stopped = 0;                 // stops by a person
  int stuck = 0;                   // fences because all members waited in vain
  int refused = 0;                 // parts not saved because members disagree on the state
  double hang_lasted = 0;          // seconds until the hanging worker was evicted
  int in_group = 0;                // reductions that a member made in its group of GPUs
  int new_groups = 0, shrunk_groups = 0, kept_groups = 0;  // groups that came into use, by origin
  int not_formed = 0;                                      // failures of a member to be in a group
  int moved = 0;                   // with ZeRO: buckets whose state went from a member to another
  int asked = 0;                   // .. requests for values after a fence
  int state_lost = 0;              // .. restarts from a checkpoint because no member had some bucket
  int exchanged = 0;               // with tensor parallelism: times that a member got values of all others
  int given_up = 0;                // .. rank gradients given up in the middle
  int stale = 0, stale_alone = 0;  // .. those dropped at their end, computed together, and alone
  int lost_within = 0;             // .. values that were lost
  int aborted_groups = 0;          // groups that a member dropped in the middle of a step
  std::vector<int> virtual_ranks;  // virtual ranks of each member of the last generation, in the order of their ids
  std::vector<std::string> log;    // events, for debugging
};

SimulationResult simulate(const Schedule& schedule);

}  // namespace elinvar
