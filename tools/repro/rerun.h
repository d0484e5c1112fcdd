#pragma once
// Repeats a run step by step in this process alone, from one of its checkpoints or from its beginning. Rank gradients,
// reduction and updates are computed as in a job with one worker, by a worker's side of the protocol
// (elastic/protocol/member.h) without a network.
#include <filesystem>
#include <string>

#include "elastic/ledger/ledger.h"
#include "elastic/run/run_record.h"
#include "elastic/session/replay.h"
#include "tools/training/remake.h"
#include "tools/training/training.h"

namespace elinvar {

class Rerun {
 public:
  // Begins with the newest undamaged checkpoint of at most `most` updates, or with a new network if there is none. Does
  // not write to the run's directory. Reports skipped checkpoints on stderr. Throws Failure if the skipped one is the
  // run's beginning, imported weights.
  Rerun(const RunRecord& run, Device device, int64_t most);

  int64_t step() const { return replay_.member().position().step; }  // updates made
  const Training& training() const { return training_; }
  StateDict state() const;  // the whole state as the ledger digests it; tensors are views

  // Makes the next update and returns its facts, with every field that a ledger line can have.
  LedgerLine advance(const RemakeCallbacks& callbacks = {});

 private:
  Training training_;
  Replay replay_;
};

}  // namespace elinvar
