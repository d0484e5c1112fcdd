#pragma once
// The inputs of a coordinator: its options, the records that it finds, and the world on which it acts besides sending
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
#include "elastic/step/arrangement_forecasts.h"
#include "elastic/step/generation.h"
#include "elastic/step/scaling_state.h"

namespace elinvar {

struct CoordinatorOptions {
  uint64_t run = 0;
  int64_t term = 1;              // the coordinator's number (elastic/run/term.h)
  std::string endpoint = {};     // workers connect to it
  int64_t steps = 0;             // ignored with adaptive scaling, where the number of samples ends the run
  int initial_workers = 1;       // the first generation waits for this many
  int min_workers = 1;           // with fewer, the job holds
  Arrangement arrangement = {};  // the first one; it may change while the job runs
  // If there are some, the job changes to better arrangements by itself, until a person asks for another one.
  ArrangementForecasts forecasts = {};
  int virtual_shards = 1;      // the network's
  SegmentCosts segments = {};  // .. with its segments, as far as they are known
  PlanLimits plan = {};        // what a model replica may be follows from the arrangement
  ScalingOptions scaling = {};
  Seconds heartbeat_timeout = 3 * kHeartbeat;  // a worker silent for longer counts as gone
  HangLimits hang = {};                        // a worker that exceeds these hangs, even if it is not silent
  Seconds stuck = 3;            // how long all members may wait without receiving anything, at first (Patience)
  Seconds repeat = 1;           // the wait for an answer to a fence before the fence is sent again
  Seconds start_timeout = 30;   // after this, min_workers are enough for the first generation
  Seconds gather_timeout = 3;   // how long a new coordinator waits for the members of an old one
  Seconds reassign_every = 10;  // minimum time between two plans that differ only in shares
  Seconds hold = 600;           // how long the job waits while every worker that has the state is silent
  int save_attempts = 3;        // failed attempts to write the last checkpoint after which the run ends
  Seconds save_again = 2;       // pause after such a failure
  Seconds save_timeout = 600;   // maximum time for writing the last checkpoint
};

// The records that a new coordinator finds: the newest one and its predecessor.
struct CoordinatorRecords {
  std::optional<Generation> newest, before;
  bool members_alive = false;  // members may still be at work: the coordinator calls them
};

class CoordinatorWorld {
 public:
  virtual ~CoordinatorWorld() = default;
  // Creates the record, durably and exclusively. Returns false if it exists already.
  virtual bool create(const Generation& generation) = 0;
  // Returns whether a coordinator of a later term exists.
  virtual bool superseded() = 0;
  // Writes the facts of steps. Returns the last step that is on file without a gap, or nothing if there is a
  // coordinator of a later term, which may not have seen what was written. May report checkpoints to the coordinator
  // (Coordinator::checkpoint) before it returns.
  virtual std::optional<int64_t> facts(const std::vector<StepFacts>& steps) = 0;
  // Called when all members of the newest generation are gone. Returns the step whose state the run continues from.
  virtual int64_t restart() = 0;
  // Returns the step of the newest checkpoint, at most `most`, or 0 if there is only the initial state.
  virtual int64_t newest_checkpoint(int64_t /*most*/) { return 0; }
  // With adaptive scaling: the contents of the ledger and of the state from which the run continues. begin_history()
  // begins a new history: reports of steps after the ledger's end no longer count.
  struct Recorded {
    ScalingState scaling_state = {};                      // the scaling state in that state
    std::vector<GenerationScaling::Change> changes = {};  // changes of the batch, at steps in the ledger
    int64_t steps = 0;                                    // number of steps in the ledger
  };
  virtual Recorded begin_history() { return {}; }
  virtual void event(const std::string& name, const nlohmann::json& fields) = 0;
  // Removes the worker from the job; it may not be able to find that out by itself.
  virtual void evict(PeerId peer) = 0;
  // Returns why a worker with this introduction cannot take part, or "".
  virtual std::string refuse(const messages::Hello& hello) = 0;
};

}  // namespace elinvar
