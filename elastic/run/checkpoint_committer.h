#pragma once
// Makes checkpoints from the parts that workers have written (CHECKPOINT.md, "Writing"). A checkpoint with all its
// parts is committed once its state is known to be the one that the members agree on.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/ledger/events.h"
#include "elastic/protocol/message.h"
#include "elastic/run/facts_recorder.h"
#include "elastic/run/term.h"

namespace elinvar {

class CheckpointCommitter {
 public:
  CheckpointCommitter(CheckpointStore& store, FactsRecorder& facts, EventLog& events, const HeldTerm& term)
      : store_(store), facts_(facts), events_(events), term_(term) {}

  struct Settled {
    int64_t step = 0;
    std::string failure = {};  // "": the checkpoint is whole
    bool operator==(const Settled&) const = default;
  };
  // Handles a worker's report that it has written its part, or could not. Throws Failure if the run directory was
  // displaced.
  std::vector<Settled> saved(int64_t step, const messages::Saved& part);
  std::vector<Settled> commit();  // commits the checkpoints that waited for facts
  // Returns the newest checkpoint of at most `most` updates whose manifest has the digest of the agreed state; 0: none.
  int64_t newest(int64_t most) const;
  void forget() { saving_.clear(); }  // drops parts of incomplete checkpoints

 private:
  struct Saving {
    std::map<int, CheckpointPart> parts;
    int expected = 0;
    std::map<std::string, std::string> digests;       // of whole tensors
    std::map<int, std::vector<SliceDigests>> slices;  // of each part
    std::map<int, Digest> attested;                   // digests of what each worker holds whole, by its part
    double copy_seconds = 0, wait_seconds = 0;        // the maximum over the parts
  };
  static StateSum sum_of(const Saving& saving);
  std::string commit(int64_t step, const Saving& saving);
  std::optional<std::string> fault_of(int64_t step, const Saving& saving);

  CheckpointStore& store_;
  FactsRecorder& facts_;
  EventLog& events_;
  const HeldTerm& term_;
  std::map<std::pair<int64_t, int>, Saving> saving_;  // by step and number of parts
};

}  // namespace elinvar
