#pragma once
// What workers tell of steps, in the files of a run: ledger.jsonl and digests.jsonl. Facts may come more than once,
// from several workers and out of order; each step is written once, in order, and a repetition must have the same
// bytes.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/ledger.h"
#include "elastic/ledger/step_facts.h"
#include "elastic/step/generation.h"

namespace elinvar {

class FactsRecorder {
 public:
  struct Options {
    std::filesystem::path directory;
    int64_t state_digest_every = 0;  // updates; 0: only at scheduled checkpoints and at the end
    int64_t checkpoint_every = 0;    // updates; 0: only at the end
    int64_t batch_size = 0;          // of the first step, with adaptive scaling
  };
  explicit FactsRecorder(Options options);

  // Before any facts: what the files begin with. UsageError if they are those of another run.
  void begin(const LedgerHeader& ledger, const DigestHeader& digests);
  // Lines that the ledger must have, as far as they go: those of a run that is replayed.
  void expect(std::vector<std::string> lines) { ledger_.expect(std::move(lines)); }
  // The run goes on with the state after `step` updates, of this digest. Returns what the user should know about that,
  // or "". Failure if digests.jsonl lacks lines before it.
  std::string go_on_from(int64_t step, const Digest& state);
  // The number of updates in the whole run; with adaptive scaling the facts tell.
  void set_steps(int64_t steps) { steps_ = steps; }
  int64_t steps() const { return steps_; }

  // Takes facts: those of the update `step` + 1, unless that was the last, and the digest of the state before it.
  // Returns the last step that is in the ledger. Failure if they contradict what is there.
  int64_t record(const std::vector<StepFacts>& steps);
  // The members agreed on this state after `step` updates, whose parts have these digests.
  void know_state(int64_t step, const Digest& state, const StateDigests& parts);
  void agree(int64_t step, const Digest& state) { states_[step] = state; }  // a checkpoint of it was committed
  // Drops facts of steps after the ledger's end: with adaptive scaling they may become different.
  void forget_what_is_ahead();

  int64_t recorded() const { return ledger_.length(); }                                      // updates in the ledger
  LedgerLine line(int64_t update) const { return LedgerLine::parse(ledger_.line(update)); }  // in [1, recorded()]
  std::optional<Digest> state(int64_t step) const;  // that the members have agreed on, as far as it is known
  const std::string& contradiction() const { return ledger_.contradiction(); }  // the line that record() failed by
  // The ledger's next step, if facts of later steps have come but not its own.
  std::optional<int64_t> untold_step() const;
  // Where the batch changes according to the ledger, or to that of the run that is replayed, and how far that goes.
  std::vector<GenerationScaling::Change> batch_changes() const;
  int64_t known_steps() const;

  void sync();
  // Writes files again that were deleted since they were opened, and calls `restored` with the name of each. Failure if
  // one was replaced or truncated.
  void restore(const std::function<void(const char* file)>& restored);

 private:
  // What is to be written of a step, whose state's digest, or predecessor, may not be known yet.
  struct Waiting {
    LedgerLine line;
    std::string digests;  // the line of digests.jsonl; "": none
  };
  bool digest_due(int64_t step) const;
  void take(const StepFacts& facts);
  void complete(int64_t step, const Digest& state, const StateDigests& parts);
  void write_waiting();

  Options options_;
  Ledger ledger_;
  DigestFile digests_;
  int64_t steps_ = 0;
  std::map<int64_t, Waiting> waiting_;
  int64_t fill_to_ = 0;  // digests.jsonl has lost lines up to here in a power cut: they come again
  std::map<int64_t, Digest> states_;
};

}  // namespace elinvar
