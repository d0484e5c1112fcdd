#pragma once
// The directory of a run, as its coordinator keeps it: ledger, events, records of generations, checkpoints. One process
// at a time holds it: on one host by a lock, beyond it and in a takeover by its term (elastic/run/term.h). Facts
// may come more than once and from several workers; they are written once, and a repetition must have the same bytes.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/packet.h"
#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/events.h"
#include "elastic/ledger/ledger.h"
#include "elastic/protocol/told_facts.h"
#include "elastic/run/generation_store.h"
#include "elastic/run/term.h"
#include "elastic/step/generation.h"

namespace elinvar {

struct RunDirectoryOptions {
  std::filesystem::path path;
  int64_t state_digest_every = 0;  // 0: only at scheduled checkpoints and at the end
  int64_t checkpoint_every = 0;    // 0: only at the end
  int keep = 3;                    // checkpoints
  bool resume = false;
  // The directory of a run with the same configuration that is to be done again: its ledger is kept beside the own one,
  // as replay.jsonl, and every line must be equal to it. Later parts of the run need not name it again.
  std::filesystem::path replay = {};
  int64_t batch_size = 0;  // of the first step, with adaptive scaling
  // Go on although the holder may not know that it is one no more: this term has been seen, and does nothing.
  std::optional<int64_t> takes_over = {};
};

class RunDirectory {
 public:
  // Locks the directory, and with `takes_over` whoever had locked it has it no more. A new run needs one without a run
  // in it (else UsageError). With `resume` the newest good checkpoint is chosen, unless workers of the run are alive,
  // who have a newer state; without any checkpoint the run starts at its beginning; if there are some and all are
  // damaged it is a Failure that tells why of each. `term` becomes the newest one; its number, and the run's if there
  // is one already, are set here.
  RunDirectory(const RunDirectoryOptions& options, const Term& term);

  const std::filesystem::path& path() const { return options_.path; }
  uint64_t run() const { return hold_.run; }
  HeldTerm& term() { return hold_.term; }
  int64_t first_step() const { return first_step_; }     // updates made in the state that the run goes on with
  int64_t recorded() const { return ledger_.length(); }  // number of updates in the ledger
  // The ledger's line of an update in [1, recorded()].
  LedgerLine line(int64_t update) const { return LedgerLine::parse(ledger_.line(update)); }
  bool members_alive() const { return members_alive_; }
  // Looks again whether members are alive, and chooses the checkpoint to go on from if none is any more: true.
  bool members_died();
  const std::vector<std::string>& notices() const { return notices_; }  // what the user should know about that
  EventLog& events() { return events_; }
  GenerationStore& generations() { return generations_; }
  // Before any facts: what the run's files begin with. UsageError if they are those of another run.
  void begin(const LedgerHeader& ledger, const DigestHeader& digests);
  // Of the whole run; before any facts, but that with adaptive scaling the facts tell.
  void set_steps(int64_t steps) { steps_ = steps; }
  int64_t steps() const { return steps_; }
  void forget_what_is_ahead();  // of the ledger: with adaptive scaling it may come about in another way
  const ScalingState& scaling_state() const { return scaling_state_; }  // in the state that the run goes on with
  // Where the batch changes according to the ledger, or to that of the run that is replayed; and how far that goes.
  std::vector<GenerationScaling::Change> batch_changes() const;
  int64_t known_steps() const;

  // After it has turned out that no worker is left: chooses the checkpoint, as if none had been alive.
  void choose_checkpoint();

  // What a worker knows of steps (elastic/ledger/step_facts.h): the facts of the update `step` + 1, unless that was the
  // last, and the digest of the state before it. Returns the last step that is in the ledger. Failure if it contradicts
  // what is there.
  int64_t facts(const std::vector<StepFacts>& steps);
  const std::string& contradiction() const { return ledger_.contradiction(); }  // by what it failed, if by a line
  // A worker has written its part of a checkpoint, or could not. A checkpoint whose parts are all there is committed
  // once it is known to be of the state that the members agree on (CHECKPOINT.md, "Writing").
  struct Saved {
    int64_t step = 0;
    std::string failure = {};  // "": the checkpoint is whole
    bool operator==(const Saved&) const = default;
  };
  std::vector<Saved> saved(int64_t step, const messages::Saved& part);
  std::vector<Saved> commit_saved();  // those that waited for facts
  // The newest checkpoint of at most `most` updates that is, as its manifest says, of that state; 0: none.
  int64_t newest_checkpoint(int64_t most) const;

  std::optional<double> loss(int64_t update) const;  // the first is 1; if the ledger has it
  std::optional<Digest> state(int64_t step) const;   // that the members have agreed on, as far as it is known
  void sync();
  // The ledger's next step, if facts of later steps have arrived but not its own.
  std::optional<int64_t> untold_step() const;
  // Writes files again that were deleted since they were opened, and returns whether any was. Failure if one was
  // replaced or truncated.
  bool restore();
  // Removes uncommitted parts of checkpoints. Call when no worker writes parts any more. Never throws.
  void remove_unfinished() const noexcept;

 private:
  struct Hold {
    File lock;
    HeldTerm term;
    uint64_t run;
  };
  struct Saving {
    std::map<int, CheckpointPart> parts;
    int expected = 0;
    std::map<std::string, std::string> digests;
    std::map<int, Digest> attested;             // of the whole state, as the worker of each part has it
    double copy_seconds = 0, wait_seconds = 0;  // the most of any part
  };
  // What is to be written of a step, whose state's digest, or predecessor, may not be known yet.
  struct Waiting {
    LedgerLine line;
    std::string digests;  // the line of digests.jsonl; "": none
  };
  bool digest_due(int64_t step) const;
  void take(const StepFacts& facts);
  void record_waiting();
  void know_state(int64_t step, const Digest& state, const StateDigests& parts);
  void remove_temporary_files() const;
  void forget_saving(int64_t step, int parts);
  std::string commit(int64_t step, const Saving& saving);
  std::optional<std::string> fault_of(int64_t step, const Saving& saving);
  static Hold take(const RunDirectoryOptions& options, Term term);

  RunDirectoryOptions options_;
  Hold hold_;
  Ledger ledger_;
  DigestFile digests_;
  EventLog events_;
  CheckpointStore store_;
  GenerationStore generations_;
  std::vector<std::string> notices_;
  int64_t first_step_ = 0, steps_ = 0;
  ScalingState scaling_state_;
  bool members_alive_ = false;
  std::map<int64_t, Waiting> waiting_;
  int64_t fill_to_ = 0;  // digests.jsonl has lost lines up to here in a power cut: they come again
  std::map<int64_t, Digest> states_;
  std::map<std::pair<int64_t, int>, Saving> saving_;  // by step and number of parts
};

// Of the run in this directory; UsageError if it holds none.
std::filesystem::path replayed_ledger(const std::filesystem::path& run_directory);

// What a worker that sees the directory holds while it lives, so that a coordinator knows.
File worker_lock(const std::filesystem::path& run_directory);

}  // namespace elinvar
