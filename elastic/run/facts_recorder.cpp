#include "elastic/run/facts_recorder.h"

#include <algorithm>

#include "elastic/step/step.h"
#include "tensor/base/check.h"

namespace elinvar {

constexpr int64_t kNoEnd = INT64_MAX >> 2;  // the number of updates is not known

FactsRecorder::FactsRecorder(Options options)
    : options_(std::move(options)),
      ledger_(options_.directory),
      digests_(options_.directory, ledger_),
      states_(ledger_) {}

void FactsRecorder::begin(const LedgerHeader& ledger, const DigestHeader& digests, std::optional<int64_t> steps) {
  steps_ = steps.value_or(kNoEnd);
  ledger_.begin(ledger);
  digests_.begin(digests);
  if (digests_.last() < ledger_.length()) fill_to_ = ledger_.length();
}

std::string FactsRecorder::go_on_from(int64_t step, const Digest& state) {
  digests_.check_reaches(ledger_, step);
  states_.add(step, state);
  return digests_.begins_late(ledger_, step)
             ? "digests.jsonl lacks the lines of the first steps: differences there cannot be located"
             : "";
}

int64_t FactsRecorder::record(const std::vector<StepFacts>& steps) {
  for (const StepFacts& facts : steps) take(facts);
  write_waiting();
  return ledger_.length() - 1;
}

void FactsRecorder::take(const StepFacts& facts) {
  const int64_t step = facts.step;
  if (facts.end) steps_ = *facts.end;
  check(step >= 0 && step <= steps_, "[facts] expected a step from 0 to {}, got {}", steps_, step);
  const std::string fault = facts.digests.empty() ? "" : DigestLine::fault(step + 1, facts.digests);
  check(fault.empty(), "[facts] of step {}: its line for digests.jsonl: {}", step, fault);
  if (facts.state) {
    states_.add(step, *facts.state);
    if (step >= 1 && step <= ledger_.length()) {
      LedgerLine line = this->line(step);
      if (line.state) {
        line.state = facts.state;
        ledger_.record(line);
      }
    }
    complete(step, *facts.state, facts.state_digests);
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
    again.state = this->line(line.step).state;
    ledger_.record(again);
  }
  if (line.step > ledger_.length() || (line.step > digests_.last() && line.step <= fill_to_))
    waiting_.emplace(line.step, Waiting{line, facts.digests});
}

void FactsRecorder::know_state(int64_t step, const Digest& state, const StateDigests& parts) {
  complete(step, state, parts);
  write_waiting();
}

void FactsRecorder::complete(int64_t step, const Digest& state, const StateDigests& parts) {
  const auto found = waiting_.find(step);
  if (found == waiting_.end() || !digest_due(step) || found->second.line.state) return;
  found->second.line.state = state;
  std::string& digests = found->second.digests;
  DigestLine line = digests.empty() ? DigestLine{.step = step} : DigestLine::parse(digests);
  line.state = parts;
  digests = line.text();
}

void FactsRecorder::write_waiting() {
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
  } catch (const Failure&) {  // the lines before it are correct
    write();
    throw;
  }
  write();
}

bool FactsRecorder::digest_due(int64_t step) const {
  return step == steps_ || due(step, options_.state_digest_every) || due(step, options_.checkpoint_every);
}

void FactsRecorder::forget_what_is_ahead() {
  waiting_.clear();
  states_.forget_what_is_ahead();
  steps_ = kNoEnd;
}

std::optional<int64_t> FactsRecorder::missing_step() const {
  const int64_t next = ledger_.length() + 1;
  if (waiting_.empty() || waiting_.begin()->first <= next) return std::nullopt;
  return next;
}

void FactsRecorder::sync() {
  digests_.sync();
  ledger_.sync();
}

void FactsRecorder::restore(const std::function<void(const char* file)>& restored) {
  if (ledger_.restore()) restored("ledger.jsonl");
  if (digests_.restore()) restored("digests.jsonl");
}

}  // namespace elinvar
