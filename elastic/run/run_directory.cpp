#include "elastic/run/run_directory.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <nlohmann/json.hpp>

#include "elastic/step/step.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {

namespace fs = std::filesystem;

// The most checkpoints whose parts may be in progress at once: each worker holds two copies (StateCopier), and one
// worker may be one checkpoint ahead of another.
constexpr size_t kMostInWork = 3;

RunDirectory::Hold RunDirectory::take(const RunDirectoryOptions& options, Term term) {
  make_directories(options.path);
  const fs::path path = options.path / "lock";
  std::optional<File> lock;
  if (!options.takes_over) {
    lock.emplace(File::append(path));
    check(lock->try_lock(), "{} is in use by another process", options.path.string());
    const bool empty = Ledger(options.path).length() == 0 &&
                       CheckpointStore(options.path / "checkpoints", options.keep).steps().empty();
    check(empty || options.resume, "{} already holds a run; --resume goes on with it, --run-dir chooses another place",
          options.path.string());
  }
  const std::optional<Term> before = newest_term(options.path);
  if (before) term.run = before->run;
  term.number = before ? before->number + 1 : 1;
  if (options.takes_over && term.number != *options.takes_over + 1)
    fail("another coordinator has taken over {} already", options.path.string());
  HeldTerm held(options.path, term);
  if (options.takes_over) {
    for (const char* name : {"ledger.jsonl", "digests.jsonl", "metrics.jsonl", "events.jsonl"})
      LineFile::renew(options.path / name);
    remove_tree(path);  // a stopped process may hold the old lock forever
    lock.emplace(File::append(path));
    (void)lock->try_lock();
  }
  return {std::move(*lock), std::move(held), term.run};
}

fs::path replayed_ledger(const fs::path& run_directory) {
  const fs::path path = run_directory / "ledger.jsonl";
  check(fs::exists(path), "{} holds no run to replay: it has no ledger.jsonl", run_directory.string());
  (void)ledger_steps(path);  // throws Failure if it has another version
  return path;
}

File worker_lock(const fs::path& run_directory) {
  File lock = File::append(run_directory / "workers.lock");
  (void)lock.try_lock_shared();
  return lock;
}

RunDirectory::RunDirectory(const RunDirectoryOptions& options, const Term& term)
    : options_(options),
      hold_(take(options, term)),
      facts_({.directory = options.path,
              .state_digest_every = options.state_digest_every,
              .checkpoint_every = options.checkpoint_every}),
      events_(options.path),
      store_(options.path / "checkpoints", options.keep),
      checkpoints_(store_, facts_, events_, hold_.term),
      generations_(options.path),
      start_{.scaling_state = {.batch = options.batch_size}} {
  const fs::path replay = options.path / "replay.jsonl";
  if (!options.replay.empty() && !fs::exists(replay)) {
    store_.copy_first(CheckpointStore(options.replay / "checkpoints"));
    replace_file(replay, read_file(replayed_ledger(options.replay)));
  }
  if (fs::exists(replay)) facts_.expect(ledger_steps(replay));
  members_alive_ = true;
  if (!members_died()) store_.trim_aside(kMostInWork);
  if (members_alive_ && options_.resume)
    start_.notices.push_back(
        fmt::format("resuming after step {} with the workers that are still at work", facts_.recorded()));
}

bool RunDirectory::members_died() {
  if (!members_alive_ || !File::append(options_.path / "workers.lock").try_lock()) return false;
  members_alive_ = false;
  store_.prepare();
  remove_temporary_files();
  if (options_.resume) choose_checkpoint();
  return true;
}

void RunDirectory::choose_checkpoint() {
  const auto contradicted = [this](const Checkpoint& checkpoint) -> std::string {
    if (checkpoint.step == 0) return "";
    if (checkpoint.step > facts_.recorded())
      return fmt::format("checkpoint of step {} cannot be used: ledger.jsonl ends at step {}", checkpoint.step,
                         facts_.recorded());
    const LedgerLine line = facts_.line(checkpoint.step);
    if (line.state && *line.state != checkpoint.digest)
      return fmt::format("checkpoint of step {} cannot be used: its state is not the one in the ledger",
                         checkpoint.step);
    return "";
  };
  std::vector<CheckpointStore::Rejected> rejected;
  const auto found = store_.newest_good(contradicted, rejected);
  std::string reasons;
  for (const auto& [at, reason] : rejected) {
    start_.notices.push_back(reason);
    events_.write("checkpoint_rejected", {{"step", at}, {"reason", reason}});
    reasons += "\n  " + reason;
  }
  if (!found && !rejected.empty()) fail("cannot resume {}: no checkpoint is good{}", options_.path.string(), reasons);
  if (found) {
    start_.step = found->step;
    if (start_.step > 0) start_.scaling_state = scaling_state_of(found->state);
    const std::string notice = facts_.go_on_from(start_.step, found->digest);
    if (!notice.empty()) start_.notices.push_back(notice);
    start_.notices.push_back(start_.step > 0 ? fmt::format("resuming after step {}", start_.step)
                                             : "starting with the imported weights");
  } else {
    start_.notices.push_back("no checkpoint yet: starting at the beginning");
  }
  events_.write("resume", {{"step", start_.step}});
}

void RunDirectory::forget_what_is_ahead() {
  facts_.forget_what_is_ahead();
  checkpoints_.forget();
}

bool RunDirectory::restore() {
  bool any = false;
  const auto restored = [&](const char* file) {
    events_.write("restored", {{"file", file}});
    any = true;
  };
  if (events_.restore()) restored("events.jsonl");
  facts_.restore(restored);
  return any;
}

void RunDirectory::remove_temporary_files() const {
  for (const char* folder : {"", "coordinators", "generations"}) remove_unfinished_files(options_.path / folder);
}

void RunDirectory::remove_unfinished() const noexcept {
  try {
    store_.trim_aside(0);
    remove_temporary_files();
  } catch (const std::exception&) {  // the next run's CheckpointStore::prepare() retries
  }
}

}  // namespace elinvar
