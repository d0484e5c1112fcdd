#pragma once
// Simulates a whole elastic job in one thread with its own clock: the real decision code of coordinator and members
// (elastic/protocol/coordinator.h, elastic/protocol/member.h), real reductions of tiny tensors, and a network, a disk
// and faults that a seed determines. A schedule consists of joins, drains, kills, stalls, cuts and dying coordinators.
// The simulator checks the protocol's invariants throughout, and that the run ends like an undisturbed one.
#include <cstdint>
#include <string>
#include <vector>

#include "elastic/step/arrangement.h"
#include "tensor/fields.h"

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
  // ZeRO's stage, and the number of workers that keep each bucket. In stage 3 the network has four segments.
  int zero = 0, copies = 2;
  bool sums = false;  // an update needs sums over all parameters
  // The first tensor is a sparse table: all members get the sums of its gradient, and in ZeRO's stage 3 passes fetch
  // its rows, of one element.
  bool table = false;
  // Tensor parallelism: the most members of a stage of a model replica, which compute rank gradients together if it is
  // above 1, and the number of virtual shards, 2 to 4.
  int tp = 1, shards = 4;
  // Pipeline parallelism: the most stages of a model replica, and whether the network's first segment is computed with
  // its last one, because the last one reads its parameter too. The network has four segments.
  int pp = 1;
  bool tied = false;
  // How often a person asks for another arrangement, each entry of which is at most that of `most`. The job begins with
  // the arrangement above.
  int rearrangements = 0;
  Arrangement most = {};
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

// What happened in a simulated job, or in several.
struct SimulationCounts {
  int64_t messages = 0;
  int64_t generations = 0;
  int64_t batch_changes = 0;           // changes of the batch that took effect
  int64_t opened = 0;                  // rank gradients put tensor by tensor
  int64_t interrupted = 0;             // tensors put after a fence interrupted the rank gradient
  int64_t killed_beside = 0;           // members killed to cause such an interruption
  int64_t lost_open = 0;               // messages lost while a rank gradient was open
  int64_t flips = 0, caught = 0;       // bits that flipped, and workers evicted for them
  int64_t tried = 0;                   // trials because claims differed
  int64_t replays = 0, undecided = 0;  // replays of a worker from a checkpoint, and runs that ended undecided
  int64_t abandoned = 0;               // workers that left without a coordinator although they saw the run directory
  int64_t stopped = 0;                 // stops by a person
  int64_t stuck = 0;                   // fences because all members waited in vain
  int64_t refused = 0;                 // parts not saved because members disagree on the state
  int64_t in_group = 0;                // reductions that a member made in its group of GPUs
  int64_t exchanged_in_group = 0;      // exchanges of values of virtual shards that it made there
  int64_t passed_in_group = 0;         // transfers between stages that it took part in
  int64_t updated_in_group = 0;        // updates whose parameters it sent and received there
  int64_t new_groups = 0, shrunk_groups = 0, kept_groups = 0;  // groups that came into use, by origin
  int64_t not_formed = 0;                                      // failures of a member to be in a group
  int64_t aborted_groups = 0;                                  // groups that a member dropped in the middle of a step
  int64_t moved = 0;                   // with ZeRO: buckets whose state went from a member to another
  int64_t asked = 0;                   // .. requests for values after a fence
  int64_t state_lost = 0;              // .. restarts from a checkpoint because no member had some bucket
  int64_t exchanged = 0;               // with tensor parallelism: times that a member got values of all others
  int64_t lost_within = 0;             // .. values that were lost
  int64_t given_up = 0;                // with it or pipeline parallelism: times that rank gradients were given up
  int64_t stale = 0, stale_alone = 0;  // .. rank gradients dropped at their end, computed together, and alone
  int64_t digested = 0;                // .. rank gradients of which a member learned the digest
  int64_t lost_digests = 0;            // .. digests that were lost
  int64_t passed = 0;                  // with pipeline parallelism: inputs of passes that came from other stages
  int64_t lost_boundary = 0;           // .. such inputs that were lost
  int64_t killed_ahead = 0;            // .. members killed while another one waited for an input
  int64_t attached = 0;                // .. data of virtual ranks that a trailer had
  int64_t fetched = 0;                 // with ZeRO-3: parameters of buckets that came from other members
  int64_t fetched_rows = 0;            // .. of these, rows of the sparse table
  int64_t fetches_over = 0;            // .. passes given up while parameters were asked for
  int64_t repeated = 0;                // .. passes begun anew while parameters were asked for
  int64_t lost_parameters = 0;         // .. requests and answers that were lost
  int64_t killed_providers = 0;        // .. members killed while another one waited for their parameters
  int64_t rearranged = 0;              // generations with another arrangement than the one before
  int64_t reforms = 0;                 // .. in which members come to hold the state in another form
  int64_t reforms_behind_fence = 0;    // .. and which begin with a fence
  int64_t reformed = 0;                // times that a member came to do so
  int64_t restored = 0;                // differences after which all members restore a checkpoint

  ELINVAR_FIELDS(restored, messages, generations, batch_changes, opened, interrupted, killed_beside, lost_open, flips,
                 caught, tried, replays, undecided, abandoned, stopped, stuck, refused, in_group, exchanged_in_group,
                 passed_in_group, updated_in_group, new_groups, shrunk_groups, kept_groups, not_formed, aborted_groups,
                 moved, asked, state_lost, exchanged, lost_within, given_up, stale, stale_alone, digested, lost_digests,
                 passed, lost_boundary, killed_ahead, attached, fetched, fetched_rows, fetches_over, repeated,
                 lost_parameters, killed_providers, rearranged, reforms, reforms_behind_fence, reformed)
};

struct SimulationResult : SimulationCounts {
  std::string violation;           // the violated invariant, or ""
  double seconds = 0;              // simulated time
  double hang_lasted = 0;          // seconds until the hanging worker was evicted
  double longest_recovery = 0;     // seconds from a fence to the generation that follows it
  std::vector<int> virtual_ranks;  // virtual ranks of each member of the last generation, in the order of their ids
  std::vector<std::string> log;    // events, for debugging
};

SimulationResult simulate(const Schedule& schedule);

}  // namespace elinvar
