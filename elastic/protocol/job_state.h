#pragma once
// What the parts of a coordinator share: where the job stands, who takes part, and the messages that are to be sent.
// Each part (PROTOCOL.md, "The coordinator's parts") gets it by reference and keeps everything else in its own fields.
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
    fencing,  // between generations, until all that were asked have answered
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
  // The most reductions that anyone with a state is known to have finished.
  int64_t completed() const;
  // Whether the worker may be computing in a generation that counts, so that a fence must answer its death.
  bool concerned(const Worker& worker) const;
  bool trains(PeerId peer) const;  // is a member, or proposed as one

  void connect(PeerId peer, const std::string& endpoint);
  void disconnect(PeerId peer);
  void send(PeerId peer, Payload payload, int64_t generation = 0, int64_t step = 0);
  void call(PeerId peer, const std::string& endpoint);  // tells a worker where its coordinator is now

  // Ends the job and releases all workers. fail() does not use the world, which may be what has failed.
  void end(const std::string& what, const std::string& reason);
  void fail(const std::string& reason);
  void superseded();  // by a coordinator of a later term: ends without a word to the workers

  const CoordinatorOptions options;
  CoordinatorWorld& world;
  int64_t steps;       // of the run; with adaptive scaling a huge number until the goal is in sight
  int64_t first_step;  // of this start of the run: updates in the state that it goes on with
  Phase phase = Phase::starting;
  int64_t number = 0;  // of the newest generation or fence
  int next_id = 1;     // of the next worker that becomes a member
  std::optional<Generation> current, proposal;
  Roster workers;
  std::optional<Ending> ending;
  std::vector<Action> actions;  // in order
};

// As people read it.
const char* name_of(JobState::Phase phase);

// Why all members must be fenced, where a decision leads to that; nothing: they need not be.
using FenceReason = std::optional<std::string>;

}  // namespace elinvar
