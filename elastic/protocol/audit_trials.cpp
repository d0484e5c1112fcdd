#include "elastic/protocol/audit_trials.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace elinvar {

using Json = nlohmann::json;
using What = Verdict::What;

constexpr int kMostTries = 10;  // of one step without a verdict

std::optional<AuditTrials::Consequence> AuditTrials::examine(const Message& m, const Evidence& evidence,
                                                             int64_t agreed_state) {
  // The members are repeating the step, or have repeated it.
  if (job_.phase != JobState::Phase::running || m.generation != job_.current->number) return std::nullopt;
  // With one copy of each bucket, whoever differs has changed a parameter after the update: its own, or one that it
  // got.
  const bool independent =
      !job_.sharded || job_.copies() == 1 || job_.copies() >= static_cast<int>(job_.current->members.size());
  Verdict verdict = judge(evidence, independent);
  if (evidence.step != tried_step_) tries_ = 0;
  tried_step_ = evidence.step;
  const bool guilty = verdict.what == What::guilty;
  // A replay cannot be compared if the batch may have changed since, and no worker has room for the optimizer's state
  // if it is sharded.
  const bool cannot_replay = verdict.what == What::replay && (job_.adaptive() || job_.sharded);
  const bool in_vain = !guilty && ++tries_ > kMostTries;
  if (in_vain)
    verdict.reason = fmt::format("{} tries have led to no verdict{}{}", kMostTries,
                                 verdict.reason.empty() ? "" : "; the last one found ", verdict.reason);
  if (cannot_replay || in_vain)
    verdict.what = cannot_replay && !in_vain && may_restore(evidence) ? What::restore : What::undecided;
  if (verdict.what == What::undecided && verdict.workers.empty())
    for (const Witness& witness : evidence.witnesses) verdict.workers.push_back(witness.worker);
  const bool nobody_left = guilty && verdict.workers.size() == job_.current->members.size();

  if (verdict.what == What::agreed) verdict.reason = "the difference did not come again";
  Json found = {{"step", evidence.step + 1}, {"verdict", name_of(verdict.what)}, {"reason", verdict.reason}};
  if (!verdict.workers.empty()) found["workers"] = verdict.workers;
  for (const int id : verdict.workers) found["machines"].push_back(machine_of(id));
  // From that state on, rank gradients of a worker with a damaged state may have been wrong.
  if (guilty && agreed_state > 0) found["states_agreed_after"] = agreed_state;
  job_.world.event("audit", found);
  if (nobody_left || verdict.what == What::undecided) {
    job_.end("failed",
             fmt::format("the audit of update {} found a fault and cannot go on without workers {}: {}; nothing of "
                         "the update is on file; resume the run on other machines",
                         evidence.step + 1, fmt::join(verdict.workers, " and "), verdict.reason));
    return std::nullopt;
  }
  Consequence consequence{.fence = !guilty, .reason = "the audit: " + verdict.reason};
  if (guilty) {
    for (const int id : verdict.workers)
      for (const GenerationMember& member : job_.current->members)
        if (member.id == id) consequence.guilty.push_back(member.peer);
    return consequence;
  }
  doubt_.reset();
  if (verdict.what != What::agreed)
    doubt_ = {.step = evidence.step, .trial = {}, .restores = verdict.what == What::restore};
  if (verdict.what == What::replay) doubt_->trial.replay = job_.world.newest_checkpoint(evidence.step);
  return consequence;
}

// A difference that comes before there is a newer checkpoint is not due to a fault that has passed.
bool AuditTrials::may_restore(const Evidence& evidence) {
  const int64_t newest = job_.world.newest_checkpoint(evidence.step);
  if (!job_.sharded || !states_differ(evidence)) return false;
  if (newest <= restored_) return false;
  restored_ = newest;
  return true;
}

Json AuditTrials::machine_of(int id) const {
  for (const auto& [peer, w] : job_.workers)
    if (w.id == id) return {{"worker", id}, {"peer", peer}, {"environment", *w.about.environment}};
  return {{"worker", id}};
}

// A trial concerns one step and the members that were at it. A worker that received its state from them is no witness.
void AuditTrials::choose_witnesses(Recovery& recovery) {
  if (!doubt_ || doubt_->step != recovery.step) return doubt_.reset();
  std::vector<PeerId> witnesses;
  for (const PeerId peer : recovery.members)
    if (job_.current->index_of(peer) >= 0) witnesses.push_back(peer);
  if (witnesses.size() < 2) return doubt_.reset();
  recovery.members = witnesses;
}

}  // namespace elinvar
