#pragma once
// The directory of a run, as its coordinator keeps it: ledger, events, records of generations, checkpoints. One process
// at a time holds it: on one host by a lock, across hosts and in a takeover by its term (elastic/run/term.h).
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
  int keep = 3;                    // the number of checkpoints to keep
  bool resume = false;
  // The directory of a run with the same configuration to repeat. Its ledger is copied to replay.jsonl, and every new
  // line must be equal to it. Later parts of the run need not name it again.
  std::filesystem::path replay = {};
  int64_t batch_size = 0;  // the first step's batch, with adaptive scaling
  // Continues although the directory's holder may not know that it has lost it: its term is this one, and its beat
  // count stands still.
  std::optional<int64_t> takes_over = {};
};

class RunDirectory {
 public:
  // Locks the directory; with `takes_over` the previous holder loses its lock. A new run requires a directory without a
  // run (else UsageError). With `resume` the newest good checkpoint is chosen, unless workers of the run are alive,
  // because they have a newer state. Without any checkpoint the run starts at its beginning. If there are checkpoints
  // and all are damaged, throws Failure that tells why for each. `term` becomes the newest term; the constructor sets
  // its number, and the run's id if the directory has one.
  RunDirectory(const RunDirectoryOptions& options, const Term& term);
  RunDirectory(const RunDirectory&) = delete;  // its parts refer to each other
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::filesystem::path& path() const { return options_.path; }
  uint64_t run() const { return hold_.run; }
  HeldTerm& term() { return hold_.term; }
  FactsRecorder& facts() { return facts_; }
  const FactsRecorder& facts() const { return facts_; }
  CheckpointCommitter& checkpoints() { return checkpoints_; }
  EventLog& events() { return events_; }
  GenerationStore& generations() { return generations_; }

  // The state with which the run continues.
  struct Start {
    int64_t step = 0;                       // updates made
    ScalingState scaling_state = {};        // with adaptive scaling
    std::vector<std::string> notices = {};  // about its choice, for the user
  };
  const Start& start() const { return start_; }
  bool members_alive() const { return members_alive_; }
  // Checks again whether members are alive. If none is, chooses the checkpoint to continue from and returns true.
  bool members_died();
  // Chooses the checkpoint as if no worker had been alive. Call it after the last worker turned out to be gone.
  void choose_checkpoint();

  // Drops facts of steps after the ledger's end: with adaptive scaling those steps may be repeated differently.
  void forget_what_is_ahead();
  // Writes files again that were deleted since they were opened, and returns whether any was. Throws Failure if one was
  // replaced or truncated.
  bool restore();
  // Removes uncommitted parts of checkpoints. Call when workers no longer write parts. Never throws.
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
  Start start_;
  bool members_alive_ = false;
};

// Returns the ledger of the run in this directory. Throws UsageError if the directory holds no run.
std::filesystem::path replayed_ledger(const std::filesystem::path& run_directory);

// Returns a lock that a worker that sees the directory holds while it lives, so that a coordinator knows of it.
File worker_lock(const std::filesystem::path& run_directory);

}  // namespace elinvar
