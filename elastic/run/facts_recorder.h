#pragma once
// Writes the facts that workers report to ledger.jsonl and digests.jsonl. Facts may arrive more than once, from several
// workers and out of order. Each step is written once, in order, and a repetition must have the same bytes.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/step_facts.h"
#include "elastic/run/agreed_states.h"

namespace elinvar {

class FactsRecorder {
 public:
  struct Options {
    std::filesystem::path directory;
    int64_t state_digest_every = 0;  // updates; 0: only at scheduled checkpoints and at the end
    int64_t checkpoint_every = 0;    // updates; 0: only at the end
  };
  explicit FactsRecorder(Options options);
  FactsRecorder(const FactsRecorder&) = delete;  // its parts refer to each other
  FactsRecorder& operator=(const FactsRecorder&) = delete;

  // Writes the headers of a run of `steps` updates; called before any facts. With adaptive scaling the facts contain
  // the number of updates instead. Throws UsageError if the files belong to another run.
  void begin(const LedgerHeader& ledger, const DigestHeader& digests, std::optional<int64_t> steps);
  // Sets the lines that the ledger must have, as far as they go: those of a run that is replayed.
  void expect(std::vector<std::string> lines) { ledger_.expect(std::move(lines)); }
  // Continues the run with the state after `step` updates, which has this digest. Returns a notice for the user, or "".
  // Throws Failure if digests.jsonl lacks lines before it.
  std::string go_on_from(int64_t step, const Digest& state);
  int64_t steps() const { return steps_; }  // updates in the whole run

  // Records facts: those of the update `step` + 1, unless the step was the last, and the digest of the state before it.
  // Returns the last step in the ledger. Throws Failure if they contradict existing lines.
  int64_t record(const std::vector<StepFacts>& steps);
  // Records that the members agreed on this state after `step` updates; its parts have these digests.
  void know_state(int64_t step, const Digest& state, const StateDigests& parts);
  // Drops facts of steps after the ledger's end: with adaptive scaling those steps may be repeated differently.
  void forget_what_is_ahead();

  int64_t recorded() const { return ledger_.length(); }  // updates in the ledger
  // `update` is in [1, recorded()].
  LedgerLine line(int64_t update) const { return LedgerLine::parse(ledger_.line(update)); }
  // Returns the ledger's next step if facts of later steps have arrived but not its own.
  std::optional<int64_t> missing_step() const;
  const Ledger& ledger() const { return ledger_; }
  AgreedStates& states() { return states_; }

  void sync();
  // Writes files again that were deleted since they were opened, and calls `restored` with the name of each. Throws
  // Failure if one was replaced or truncated.
  void restore(const std::function<void(const char* file)>& restored);

 private:
  // The lines of a step whose state digest, or predecessor, may not be known yet.
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
  AgreedStates states_;
  int64_t steps_ = 0;
  std::map<int64_t, Waiting> waiting_;
  int64_t fill_to_ = 0;  // digests.jsonl lost its lines up to here in a power cut; workers report them again
};

}  // namespace elinvar
