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

// The most checkpoints whose parts may be in work at once: each worker holds two copies (StateCopier), and one worker
// may be one checkpoint ahead of another.
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
    remove_tree(path);  // a stopped process may hold the old one for ever
    lock.emplace(File::append(path));
    (void)lock->try_lock();
  }
  return {std::move(*lock), std::move(held), term.run};
}

fs::path replayed_ledger(const fs::path& run_directory) {
  const fs::path path = run_directory / "ledger.jsonl";
  check(fs::exists(path), "{} holds no run to replay: it has no ledger.jsonl", run_directory.string());
  (void)ledger_steps(path);  // a Failure if it is of another version
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
      ledger_(options.path),
      digests_(options.path, ledger_),
      events_(options.path),
      store_(options.path / "checkpoints", options.keep),
      generations_(options.path),
      scaling_state_{.batch = options.batch_size} {
  const fs::path replay = options.path / "replay.jsonl";
  if (!options.replay.empty() && !fs::exists(replay)) {
    store_.copy_first(CheckpointStore(options.replay / "checkpoints"));
    replace_file(replay, read_file(replayed_ledger(options.replay)));
  }
  if (fs::exists(replay)) ledger_.expect(ledger_steps(replay));
  members_alive_ = true;
  if (!members_died()) store_.trim_aside(kMostInWork);
  if (members_alive_ && options_.resume)
    notices_.push_back(fmt::format("resuming after step {} with the workers that are still at work", ledger_.length()));
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
    if (checkpoint.step > ledger_.length())
      return fmt::format("checkpoint of step {} cannot be used: ledger.jsonl ends at step {}", checkpoint.step,
                         ledger_.length());
    const LedgerLine line = LedgerLine::parse(ledger_.line(checkpoint.step));
    if (line.state && *line.state != checkpoint.digest)
      return fmt::format("checkpoint of step {} cannot be used: its state is not the one in the ledger",
                         checkpoint.step);
    return "";
  };
  std::vector<CheckpointStore::Rejected> rejected;
  const auto found = store_.newest_good(contradicted, rejected);
  std::string reasons;
  for (const auto& [at, reason] : rejected) {
    notices_.push_back(reason);
    events_.write("checkpoint_rejected", {{"step", at}, {"reason", reason}});
    reasons += "\n  " + reason;
  }
  if (!found && !rejected.empty()) fail("cannot resume {}: no checkpoint is good{}", options_.path.string(), reasons);
  if (found) {
    first_step_ = found->step;
    if (first_step_ > 0) scaling_state_ = scaling_state_of(found->state);
    digests_.check_reaches(ledger_, first_step_);
    if (digests_.begins_late(ledger_, first_step_))
      notices_.push_back("digests.jsonl lacks the lines of the first steps: differences there cannot be located");
    states_[first_step_] = found->digest;
    notices_.push_back(first_step_ > 0 ? fmt::format("resuming after step {}", first_step_)
                                       : "starting with the imported weights");
  } else {
    notices_.push_back("no checkpoint yet: starting at the beginning");
  }
  events_.write("resume", {{"step", first_step_}});
}

void RunDirectory::begin(const LedgerHeader& ledger, const DigestHeader& digests) {
  ledger_.begin(ledger);
  digests_.begin(digests);
  if (digests_.last() < ledger_.length()) fill_to_ = ledger_.length();
}

std::optional<int64_t> RunDirectory::untold_step() const {
  const int64_t next = ledger_.length() + 1;
  if (waiting_.empty() || waiting_.begin()->first <= next) return std::nullopt;
  return next;
}

bool RunDirectory::restore() {
  bool restored = false;
  const auto again = [&](const char* name, auto& file) {
    if (!file.restore()) return;
    events_.write("restored", {{"file", name}});
    restored = true;
  };
  again("events.jsonl", events_);
  again("ledger.jsonl", ledger_);
  again("digests.jsonl", digests_);
  return restored;
}

void RunDirectory::remove_temporary_files() const {
  for (const char* folder : {"", "coordinators", "generations"}) remove_unfinished_files(options_.path / folder);
}

void RunDirectory::remove_unfinished() const noexcept {
  try {
    store_.trim_aside(0);
    remove_temporary_files();
  } catch (const std::exception&) {  // CheckpointStore::prepare() of the next run tries again
  }
}

void RunDirectory::sync() {
  digests_.sync();
  ledger_.sync();
}

bool RunDirectory::digest_due(int64_t step) const {
  return step == steps_ || due(step, options_.state_digest_every) || due(step, options_.checkpoint_every);
}

void RunDirectory::forget_what_is_ahead() {
  waiting_.clear();
  saving_.clear();
  states_.erase(states_.upper_bound(ledger_.length()), states_.end());
  steps_ = INT64_MAX >> 2;
}

int64_t RunDirectory::known_steps() const {
  return std::max(ledger_.length(), static_cast<int64_t>(ledger_.expected().size()));
}

std::vector<GenerationScaling::Change> RunDirectory::batch_changes() const {
  std::vector<GenerationScaling::Change> changes;
  for (int64_t step = 1; step <= known_steps(); ++step) {
    const bool own = step <= ledger_.length();
    const std::string& line = own ? ledger_.line(step) : ledger_.expected()[static_cast<size_t>(step - 1)];
    note_batch(changes, options_.batch_size, LedgerLine::parse(line));
  }
  return changes;
}

int64_t RunDirectory::facts(const std::vector<StepFacts>& steps) {
  for (const StepFacts& facts : steps) take(facts);
  record_waiting();
  return ledger_.length() - 1;
}

void RunDirectory::take(const StepFacts& facts) {
  const int64_t step = facts.step;
  if (facts.end) steps_ = *facts.end;
  check(step >= 0 && step <= steps_, "[facts] expected a step from 0 to {}, got {}", steps_, step);
  const std::string fault = facts.digests.empty() ? "" : DigestLine::fault(step + 1, facts.digests);
  check(fault.empty(), "[facts] of step {}: its line for digests.jsonl: {}", step, fault);
  if (facts.state) {
    states_[step] = *facts.state;
    if (states_.size() > 64) states_.erase(states_.begin());
    if (step >= 1 && step <= ledger_.length()) {
      LedgerLine line = LedgerLine::parse(ledger_.line(step));
      if (line.state) {
        line.state = facts.state;
        ledger_.record(line);
      }
    }
    know_state(step, *facts.state, facts.state_digests);
  }
  if (step >= steps_) return;
  check(facts.update.has_value(), "[facts] of step {}: expected those of update {}, got none", step, step + 1);
  const UpdateFacts& update = *facts.update;
  LedgerLine line{.step = step + 1,
                  .batch = update.batch,
                  .loss = update.loss,
                  .leaves = update.leaves,
                  .gradient = update.gradient,
                  .lr = facts.report.lr,
                  .state = {}};
  if (update.batch_size > 0) line.batch_size = update.batch_size;
  if (line.step <= ledger_.length()) {
    LedgerLine again = line;
    again.state = LedgerLine::parse(ledger_.line(line.step)).state;
    ledger_.record(again);
  }
  if (line.step > ledger_.length() || (line.step > digests_.last() && line.step <= fill_to_))
    waiting_.emplace(line.step, Waiting{line, facts.digests});
}

void RunDirectory::record_waiting() {
  const auto write = [this] {
    digests_.write();
    ledger_.write();
  };
  try {
    for (auto next = waiting_.begin(); next != waiting_.end() && next->first <= ledger_.length() + 1;) {
      Waiting& waiting = next->second;
      if (digest_due(next->first) && !waiting.line.state) break;
      if (!waiting.digests.empty()) digests_.record(next->first, waiting.digests);
      ledger_.record(waiting.line);
      next = waiting_.erase(next);
    }
  } catch (const Failure&) {  // those before it are true
    write();
    throw;
  }
  write();
}

void RunDirectory::know_state(int64_t step, const Digest& state, const StateDigests& parts) {
  const auto found = waiting_.find(step);
  if (found == waiting_.end() || !digest_due(step) || found->second.line.state) return;
  found->second.line.state = state;
  std::string& digests = found->second.digests;
  DigestLine line = digests.empty() ? DigestLine{.step = step} : DigestLine::parse(digests);
  line.state = parts;
  digests = line.text();
}

std::vector<RunDirectory::Saved> RunDirectory::saved(int64_t step, const messages::Saved& part) {
  if (!part.error.empty()) {
    events_.write("checkpoint_failed", {{"step", step}, {"part", part.part}, {"reason", part.error}});
    forget_saving(step, part.parts);
    return {{step, part.error}};
  }
  Saving& saving = saving_[{step, part.parts}];
  saving.expected = part.parts;
  saving.parts[part.part] = {.file = part.file, .bytes = part.bytes, .digest = part.digest};
  for (const auto& [name, digest] : part.digests) saving.digests[name] = digest;
  if (part.state) saving.attested[part.part] = *part.state;
  saving.copy_seconds = std::max(saving.copy_seconds, part.copy_seconds);
  saving.wait_seconds = std::max(saving.wait_seconds, part.wait_seconds);
  return commit_saved();
}

// Why what was saved, of which no part is missing, is no checkpoint; "": it is one, nothing: that is not known yet.
std::optional<std::string> RunDirectory::fault_of(int64_t step, const Saving& saving) {
  std::optional<Digest> agreed = state(step);
  if (!agreed && static_cast<int>(saving.attested.size()) == saving.expected) {
    agreed = saving.attested.begin()->second;
    for (const auto& [part, attested] : saving.attested)
      if (attested != *agreed)
        return fmt::format("the workers of parts {} and {} have different states: a machine or its memory is at fault",
                           saving.attested.begin()->first, part);
  }
  if (!agreed) return std::nullopt;
  const auto [digest, parts] = state_sum(saving.digests);
  if (digest != *agreed) return "what was saved is not the state that the workers agree on";
  know_state(step, digest, parts);
  record_waiting();
  return step > ledger_.length() ? std::nullopt : std::optional<std::string>("");
}

std::vector<RunDirectory::Saved> RunDirectory::commit_saved() {
  std::vector<Saved> settled;
  for (auto it = saving_.begin(); it != saving_.end();) {
    const int64_t step = it->first.first;
    const Saving& saving = it->second;
    const bool whole = static_cast<int>(saving.parts.size()) == saving.expected;
    std::optional<std::string> fault = whole ? fault_of(step, saving) : std::nullopt;
    if (!fault) {
      ++it;
      continue;
    }
    if (fault->empty()) fault = commit(step, saving);
    settled.push_back({step, *fault});
    if (!fault->empty()) {
      store_.discard_parts(step, it->first.second);
      events_.write("checkpoint_failed", {{"step", step}, {"reason", *fault}});
    }
    it = saving_.erase(it);
    if (fault->empty()) {
      // Each worker writes its parts in order, so missing parts of earlier checkpoints will not come.
      std::erase_if(saving_, [&](const auto& earlier) { return earlier.first.first < step; });
      if (const std::string why = store_.prune(step); !why.empty())
        events_.write("checkpoints_not_pruned", {{"step", step}, {"reason", why}});
      it = saving_.lower_bound({step, 0});
    }
  }
  return settled;
}

// "", or why the parts, all of which were written, do not become a checkpoint: somebody removed them, or the disk is
// full.
std::string RunDirectory::commit(int64_t step, const Saving& saving) {
  std::vector<CheckpointPart> files;
  for (const auto& [number, part] : saving.parts) files.push_back(part);
  const Digest digest = state_sum(saving.digests).digest;
  sync();
  try {
    store_.commit(step, files, digest);
  } catch (const Failure& failure) {
    hold_.term.newest();  // as below
    return failure.what();
  }
  hold_.term.newest();  // throws if the directory was displaced: the checkpoint must not be announced then
  states_[step] = digest;
  events_.write("checkpoint", {{"step", step},
                               {"state", digest.hex()},
                               {"copy_seconds", saving.copy_seconds},
                               {"wait_seconds", saving.wait_seconds}});
  return "";
}

// Called when a part could not be written.
void RunDirectory::forget_saving(int64_t step, int parts) {
  saving_.erase({step, parts});
  store_.discard_parts(step, parts);
}

int64_t RunDirectory::newest_checkpoint(int64_t most) const {
  std::vector<int64_t> steps = store_.steps();
  for (; !steps.empty(); steps.pop_back()) {
    const int64_t step = steps.back();
    const std::optional<Digest> digest = step <= most ? store_.manifest_digest(step) : std::nullopt;
    if (digest && *digest == state(step).value_or(*digest)) return step;
  }
  return 0;
}

std::optional<double> RunDirectory::loss(int64_t update) const {
  if (update < 1 || update > ledger_.length()) return std::nullopt;
  return LedgerLine::parse(ledger_.line(update)).loss;
}

std::optional<Digest> RunDirectory::state(int64_t step) const {
  const auto found = states_.find(step);
  if (found != states_.end()) return found->second;
  if (step < 1 || step > ledger_.length()) return std::nullopt;
  return LedgerLine::parse(ledger_.line(step)).state;
}

}  // namespace elinvar
