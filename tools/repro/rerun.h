#pragma once
// A run done again in this process alone, step by step, from one of its checkpoints or from its beginning. Leaves,
// reduction and updates are those of a job with one worker: what a worker's side of the protocol does
// (elastic/protocol/member.h), without anybody to talk to.
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
  // Begins with the newest good checkpoint of at most `most` updates, or as a new network if there is none. Nothing is
  // written to the run's directory. Says on stderr which checkpoints were passed over; Failure if that is what it
  // began with, imported weights.
  Rerun(const RunRecord& run, Device device, int64_t most);

  int64_t step() const { return replay_.member().position().step; }  // updates made
  const Training& training() const { return training_; }
  StateDict state() const;  // whole, as the ledger digests it: views

  // Makes the next update and returns its facts: all that a line of the ledger can have.
  using Told = ToldOfRemaking;
  LedgerLine advance(const Told& told);
  LedgerLine advance() { return advance(Told{}); }

 private:
  Training training_;
  Replay replay_;
};

}  // namespace elinvar
