// The coordinator: what an audit has found, and which worker is evicted for it (PROTOCOL.md, "Audit").
#include <fmt/format.h>

#include <algorithm>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

using Json = nlohmann::json;

constexpr int kMostTries = 10;  // of one step, that lead to no verdict

void Coordinator::audit(const Message& m, const Evidence& evidence, Seconds now) {
  if (phase_ != Phase::running || m.generation != current_->number) return;  // the members do it again, or have
  Verdict verdict = judge(evidence);
  if (evidence.step != tried_step_) tries_ = 0;
  tried_step_ = evidence.step;
  // Nothing is there to compare a replay with if the batch may be another one than then.
  const bool guilty = verdict.what == Verdict::What::guilty;
  const bool cannot_replay = verdict.what == Verdict::What::replay && adaptive();
  const bool in_vain = !guilty && ++tries_ > kMostTries;
  if (in_vain)
    verdict.reason = fmt::format("{} tries have led to no verdict{}{}", kMostTries,
                                 verdict.reason.empty() ? "" : "; the last one found ", verdict.reason);
  if (cannot_replay || in_vain) verdict.what = Verdict::What::undecided;
  if (verdict.what == Verdict::What::undecided && verdict.workers.empty())
    for (const Witness& witness : evidence.witnesses) verdict.workers.push_back(witness.worker);
  const bool nobody_left = guilty && verdict.workers.size() == current_->members.size();

  if (verdict.what == Verdict::What::agreed) verdict.reason = "the difference did not come again";
  Json found = {{"step", evidence.step + 1}, {"verdict", elinvar::name_of(verdict.what)}, {"reason", verdict.reason}};
  if (!verdict.workers.empty()) found["workers"] = verdict.workers;
  for (const int id : verdict.workers) found["machines"].push_back(machine_of(id));
  // From then on leaves of a worker whose state is damaged may have been wrong.
  if (guilty && agreed_state_ > 0) found["states_agreed_after"] = agreed_state_;
  world_.event("audit", found);
  if (nobody_left || verdict.what == Verdict::What::undecided)
    return end("failed",
               fmt::format("the audit of update {} found a fault and cannot go on without workers {}: {}; nothing of "
                           "the update is on file, go on with --resume, on other machines",
                           evidence.step + 1, fmt::join(verdict.workers, " and "), verdict.reason));
  if (guilty) {
    for (const int id : verdict.workers)
      for (const GenerationMember& member : std::vector<GenerationMember>(current_->members))
        if (member.id == id) evict(member.peer, "the audit: " + verdict.reason, now, /*guilty=*/true);
    return;
  }
  doubt_.reset();
  if (verdict.what != Verdict::What::agreed) doubt_ = {evidence.step, {}};
  if (verdict.what == Verdict::What::replay) doubt_->trial.replay = world_.newest_checkpoint(evidence.step);
  fence("the audit: " + verdict.reason, now);
}

Json Coordinator::machine_of(int id) const {
  for (const auto& [peer, w] : workers_)
    if (w.id == id) return {{"worker", id}, {"peer", peer}, {"environment", w.about.environment}};
  return {{"worker", id}};
}

// A trial is about one step, and among those who were at it: who has learnt its state from them is no witness.
void Coordinator::prepare_trial(Recovery& recovery) {
  if (!doubt_ || doubt_->step != recovery.step) return doubt_.reset();
  std::vector<PeerId> witnesses;
  for (const PeerId peer : recovery.members)
    if (current_->index_of(peer) >= 0) witnesses.push_back(peer);
  if (witnesses.size() < 2) return doubt_.reset();
  recovery.members = witnesses;
}

}  // namespace elinvar
