#pragma once
// State shared by the parts of a coordinator: the job's progress, the workers, and the messages to send. Each part
// (PROTOCOL.md, "The coordinator's parts") takes it by reference and keeps everything else in its own fields.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/coordinator_world.h"
#include "elastic/protocol/member.h"
#include "elastic/protocol/roster.h"

namespace elinvar {

struct JobState {
  enum class Phase {
    gathering,  // a new coordinator waits for the members of an old one
    starting,   // before the first generation
    running,
    fencing,  // between generations, until all fenced workers have answered
    holding,  // fenced, with too few workers to go on
    ended,
  };
  struct Ending {
    std::string what;  // "finished", "stopped", "failed", "superseded"
    std::string reason;
  };

  JobState(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step);
  JobState(const JobState&) = delete;
  JobState& operator=(const JobState&) = delete;

  bool adaptive() const { return options.scaling.batch > 0; }
  PlanLimits limits() const;  // for the arrangement
  // The stage of ZeRO of the workers: once the optimizer's state is sharded, it remains so.
  int zero() const { return zero_in(arrangement); }
  bool changes_form() const { return wanted && form_of(zero_in(wanted->arrangement)) != form_of(zero()); }
  // Returns why the network and the workers do not allow the arrangement, or "".
  std::string why_not(const Arrangement& other) const;
  // The stage of ZeRO with which newcomers are to hold the state: as members will or, while there are too few of them
  // to go on, as those do.
  int zero_of_newcomers() const { return phase == Phase::holding ? held : zero(); }
  bool fits(int zero) const { return form_of(zero) == form_of(zero_of_newcomers()); }
  // Whether another form is planned, or members have not completed the step that changes it.
  bool changing_form() const;
  // How many workers keep each bucket of the optimizer's state, if there are so many. Requires `sharded`.
  int copies() const { return arrangement.zero > 0 ? arrangement.copies : kMostParallel; }
  // Returns the most reductions that any worker with a state is known to have finished.
  int64_t completed() const;
  // Returns whether the worker may be computing in a generation that counts, so that its death requires a fence.
  bool concerned(const Worker& worker) const;
  bool trains(PeerId peer) const;  // whether it is a member, or proposed as one

  void connect(PeerId peer, const std::string& endpoint);
  void disconnect(PeerId peer);
  void send(PeerId peer, Payload payload, int64_t generation = 0, int64_t step = 0);
  void call(PeerId peer, const std::string& endpoint);  // tells a worker its coordinator's address

  // End the job and release all workers. fail() does not use the world, because the world may be what has failed.
  void end(const std::string& what, const std::string& reason);
  void fail(const std::string& reason);
  void superseded();  // ends the job for a coordinator of a later term, without telling the workers

  // Other model replicas need buckets of single segments and virtual shards, which a sharded state has.
  int zero_in(const Arrangement& next) const {
    const bool others = next.tp != arrangement.tp || next.pp != arrangement.pp;
    return std::max(next.zero, sharded || others ? 1 : 0);
  }

  const CoordinatorOptions options;
  CoordinatorWorld& world;
  int64_t steps;            // steps of the run; with adaptive scaling, a huge number until the last step is known
  int64_t first_step;       // updates in the state from which this start of the run continues
  Arrangement arrangement;  // of the newest record
  std::optional<ArrangementChoice> wanted;  // of the next planned one
  bool automatic;  // the job chooses other arrangements by itself (CoordinatorOptions::forecasts)
  // The optimizer's state is sharded. Once it is, it remains so: without ZeRO all members then keep all buckets.
  bool sharded;
  int held = 0;  // while the job holds: the stage of ZeRO with which members hold the state
  SegmentCosts segments;
  Phase phase = Phase::starting;
  int64_t number = 0;  // number of the newest generation or fence
  int next_id = 1;     // id of the next worker that becomes a member
  std::optional<Generation> current, proposal;
  Roster workers;
  std::optional<Ending> ending;
  std::vector<Action> actions;  // in the order in which to carry them out
};

// Returns the phase's name for people.
const char* name_of(JobState::Phase phase);

// Why a decision requires a fence of all members; empty if it does not.
using FenceReason = std::optional<std::string>;

}  // namespace elinvar
