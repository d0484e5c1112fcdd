#pragma once
// A whole elastic job in one thread, on a clock of its own: the coordinator's and the members' real decision code
// (elastic/protocol/coordinator.h, elastic/protocol/member.h), real reductions of tiny tensors, and a network, disk and
// fate that are made up from a seed. A run of it is a schedule of joins, drains, kills, stalls, cuts and coordinators
// that die; what must hold at every moment is checked, and it must end as an undisturbed run does.
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
  // With adaptive scaling the run is as long as `steps` of the first batch would be.
  bool adaptive = false;
  // Every so many updates are audited, and so many times a bit flips in what is. With lasting faults it may be one of a
  // worker's state, or one of each audited leaf that this worker computes.
  int64_t audit_every = 0;
  int flips = 0;
  bool lasting_faults = false;
  // Of so many of a hundred workers each is a GPU that can be in a group, and most agree on the library.
  int gpus = 0;
  std::vector<double> leaf_seconds = {};  // of the first workers; of others it is random
  double hang_at = -1;                    // one of them hangs then; -1: none
  // The coordinator dies so early that there may be no generation yet, and nobody resumes; a worker may stop then. With
  // 2 the same happens again after everybody was killed and the run goes on.
  int orphaned = 0;
  bool kills = true, stalls = true, cuts = true, hangs = true, drains = true, joins = true, coordinator_dies = true,
       stops = true, drops = true;
};

struct SimulationResult {
  std::string violation;  // "": everything held
  double seconds = 0;     // of simulated time
  int64_t messages = 0;
  int generations = 0;
  int batch_changes = 0;           // that came to pass
  int opened = 0;                  // leaves that were given gradient by gradient,
  int interrupted = 0;             // how often a fence had fallen into one when it went on,
  int killed_beside = 0;           // how often a member died so that one would,
  int lost_open = 0;               // and messages of such leaves that were lost
  int flips = 0, caught = 0;       // bits that flipped, and workers that were evicted for it
  int replays = 0, undecided = 0;  // of a checkpoint by a worker, and runs that ended since nobody could tell
  int abandoned = 0;               // workers that left for lack of a coordinator, and saw the run directory
  int stopped = 0;                 // how often a person stopped the run,
  int refused = 0;                 // and what was saved of a state that members do not agree on
  double hang_lasted = 0;          // until it was evicted
  int in_group = 0;                // reductions of a member by its group of GPUs,
  int new_groups = 0, shrunk_groups = 0, kept_groups = 0;  // groups that came into use, and how they had been made,
  int not_formed = 0;                                      // how often a member could not be in one,
  int aborted_groups = 0;                                  // and was in one that it dropped in the middle of a step
  std::vector<int> virtual_ranks;  // of the members of the last generation, in the order of their ids
  std::vector<std::string> log;    // what happened, for a person who has to find out why
};

SimulationResult simulate(const Schedule& schedule);

}  // namespace elinvar
