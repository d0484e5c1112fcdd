#pragma once
// The directory of a run, as its coordinator keeps it: ledger, events, records of generations, checkpoints. One process
// at a time holds it: on one host by a lock, beyond it and in a takeover by its term (elastic/run/term.h).
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/packet.h"
#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/events.h"
#include "elastic/run/checkpoint_committer.h"
#include "elastic/run/facts_recorder.h"
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
  FactsRecorder& facts() { return facts_; }
  const FactsRecorder& facts() const { return facts_; }
  CheckpointCommitter& checkpoints() { return checkpoints_; }
  EventLog& events() { return events_; }
  GenerationStore& generations() { return generations_; }

  int64_t first_step() const { return first_step_; }  // updates made in the state that the run goes on with
  const ScalingState& scaling_state() const { return scaling_state_; }  // in that state
  bool members_alive() const { return members_alive_; }
  // Looks again whether members are alive, and chooses the checkpoint to go on from if none is any more: true.
  bool members_died();
  // After it has turned out that no worker is left: chooses the checkpoint, as if none had been alive.
  void choose_checkpoint();
  const std::vector<std::string>& notices() const { return notices_; }  // what the user should know about that

  // Drops what is known of steps after the ledger's end: with adaptive scaling it may come about in another way.
  void forget_what_is_ahead();
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
  void remove_temporary_files() const;
  static Hold take(const RunDirectoryOptions& options, Term term);

  RunDirectoryOptions options_;
  Hold hold_;
  FactsRecorder facts_;
  EventLog events_;
  CheckpointStore store_;
  CheckpointCommitter checkpoints_;
  GenerationStore generations_;
  std::vector<std::string> notices_;
  int64_t first_step_ = 0;
  ScalingState scaling_state_;
  bool members_alive_ = false;
};

// Of the run in this directory; UsageError if it holds none.
std::filesystem::path replayed_ledger(const std::filesystem::path& run_directory);

// What a worker that sees the directory holds while it lives, so that a coordinator knows.
File worker_lock(const std::filesystem::path& run_directory);

}  // namespace elinvar
