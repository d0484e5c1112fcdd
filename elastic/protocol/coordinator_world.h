#pragma once
// What a coordinator is given: its options, the records that it finds, and the world that it acts on besides sending
// messages. The process implements CoordinatorWorld with the run directory, the simulator with maps.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/hang.h"
#include "elastic/protocol/message.h"
#include "elastic/protocol/plan.h"
#include "elastic/protocol/roster.h"
#include "elastic/step/generation.h"
#include "elastic/step/scaling_state.h"

namespace elinvar {

struct CoordinatorOptions {
  uint64_t run = 0;
  int64_t term = 1;           // the coordinator's number (elastic/run/term.h)
  std::string endpoint = {};  // where workers find it
  int64_t steps = 0;          // ignored with adaptive scaling, whose goal ends the run
  int initial_workers = 1;    // the first generation waits for this many
  int min_workers = 1;        // with fewer the job holds
  PlanLimits plan = {};
  ScalingOptions scaling = {};
  Seconds heartbeat_timeout = 3 * kHeartbeat;  // a worker that is silent for longer counts as gone
  HangLimits hang = {};                        // a worker that exceeds these hangs, although it is not silent
  Seconds stuck = 3;                           // how long all may wait while nothing comes, at first (Patience)
  Seconds repeat = 1;                          // how long to wait for the answer to a fence before it is sent again
  Seconds start_timeout = 30;                  // then min_workers are enough for the first generation
  Seconds gather_timeout = 3;                  // how long a new coordinator waits for the members of an old one
  Seconds reassign_every = 10;                 // the least time between two plans that differ in shares alone
  Seconds hold = 600;                          // how long the job waits where everyone who has the state is silent
  int save_attempts = 3;                       // failures to write the last checkpoint that end the run
  Seconds save_again = 2;                      // the pause after such a failure
  Seconds save_timeout = 600;                  // how long writing the last checkpoint may take
};

// The records that a new coordinator finds: the newest, and the one that it follows.
struct CoordinatorRecords {
  std::optional<Generation> newest, before;
  bool members_alive = false;  // members may still be at work: the coordinator tells them where it is
};

class CoordinatorWorld {
 public:
  virtual ~CoordinatorWorld() = default;
  // Creates the record, durably and exclusively; false: there is one already.
  virtual bool create(const Generation& generation) = 0;
  // Whether there is a coordinator of a later term.
  virtual bool superseded() = 0;
  // Writes down what is known of steps; returns the last step that is on file without a gap, or nothing if there is a
  // coordinator of a later term, which may not have seen what was written. May report checkpoints to the coordinator
  // (Coordinator::checkpoint) before it returns.
  virtual std::optional<int64_t> facts(const std::vector<StepFacts>& steps) = 0;
  // The members of the newest generation are all gone: the step whose state the run goes on with.
  virtual int64_t restart() = 0;
  // The step of the newest checkpoint, at most `most`; 0: none but the state that the run began with.
  virtual int64_t newest_checkpoint(int64_t /*most*/) { return 0; }
  // With adaptive scaling, what the state that the run goes on with and the ledger say. A new history begins: what was
  // told of steps after the ledger's end is no longer true.
  struct Recorded {
    ScalingState scaling_state = {};                      // in that state
    std::vector<GenerationScaling::Change> changes = {};  // of the batch, at steps in the ledger
    int64_t steps = 0;                                    // in the ledger
  };
  virtual Recorded begin_history() { return {}; }
  virtual void event(const std::string& name, const nlohmann::json& fields) = 0;
  // The worker is no longer part of the job, but may not be able to find that out by itself.
  virtual void evict(PeerId peer) = 0;
  // Why a worker that introduces itself so cannot take part; "": it can.
  virtual std::string refuse(const messages::Hello& hello) = 0;
};

}  // namespace elinvar
