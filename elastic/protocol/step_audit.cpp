#include "elastic/protocol/step_audit.h"

namespace elinvar {

StepAudit::StepAudit(const AuditOptions& options, int vranks, const MemberPosition& position, MemberOutbox& outbox)
    : options_(options), vranks_(vranks), position_(position), outbox_(outbox) {}

bool StepAudit::audits() const {
  return audited(options_, position_.completed) && !position_.last() && position_.begun();
}

AuditRoles StepAudit::roles(std::span<const int> owners) const {
  return audit_roles(options_, *position_.generation, position_.completed, vranks_, owners);
}

bool StepAudit::on_trial() const {
  const std::optional<Generation>& generation = position_.generation;
  return generation && generation->trial && position_.completed == generation->first_step;
}

std::optional<int> StepAudit::due_vrank() const {
  if (!audits()) return std::nullopt;
  const AuditRoles roles = this->roles();
  const size_t wanted = position_.members() == 1 ? 2 : 1;  // a member alone makes the claim twice
  const bool due = on_trial() ? testified_ != position_.number()
                              : roles.auditor == position_.index && claims_.leaves.size() < wanted;
  return due ? std::optional(roles.vrank) : std::nullopt;
}

bool StepAudit::compares(int64_t step, int vrank) const {
  return step == position_.completed && audited(options_, step) && !position_.last() &&
         vrank == audited_vrank(options_, step, vranks_);
}

void StepAudit::say_state(const Digest& state) {
  if (audits()) claims_.states.push_back(state);
}

void StepAudit::say_gradient(int vrank, const RankGradient& gradient) {
  if (!compares(position_.completed, vrank)) return;
  claims_.leaves.push_back(gradient.digest ? *gradient.digest : digest_of(gradient));
  testified_ = position_.number();
}

void StepAudit::say_together(int vrank, const Digest& digest) {
  if (compares(position_.completed, vrank) && !position_.fenced()) claims_.together = digest;
}

std::optional<AuditClaims> StepAudit::claims() const {
  if (!audits()) return std::nullopt;
  return AuditClaims{.states = claims_.states, .leaves = claims_.leaves, .sums = {}, .together = claims_.together};
}

std::optional<SumAudit> StepAudit::sum_audit(std::span<const int> owners) {
  evidence_.reset();
  if (!audits() || position_.members() < 2) return std::nullopt;
  const AuditRoles roles = this->roles(owners);
  if (roles.bucket < 0) return std::nullopt;
  return SumAudit(SumAudit::roles_of(roles, on_trial(), position_.members()), position_.index, claims_.sums);
}

StepAudit::Outcome StepAudit::judge(const Exchange& exchange) {
  if (!audits()) return Outcome::agreed;
  if (evidence_) return Outcome::reported;
  const Generation& generation = *position_.generation;
  Evidence evidence{.stage = !on_trial()                ? Evidence::Stage::audit
                             : generation.trial->replay ? Evidence::Stage::replay
                                                        : Evidence::Stage::trial,
                    .step = position_.completed,
                    .vrank = roles().vrank,
                    .bucket = exchange.audit() ? exchange.audit()->roles().bucket : -1,
                    .witnesses = {},
                    .received = exchange.audit() ? exchange.audit()->received() : std::nullopt};
  for (size_t m = 0; m < generation.members.size(); ++m)
    evidence.witnesses.push_back({generation.members[m].id, exchange.trailer().audit.at(m)});
  if (exchange.audit())
    for (const auto& [m, sums] : exchange.audit()->heard())
      evidence.witnesses[static_cast<size_t>(m)].claims.sums = sums;
  if (!on_trial() && elinvar::judge(evidence).what == Verdict::What::agreed) return Outcome::agreed;
  evidence_ = std::move(evidence);
  return Outcome::disagreed;
}

void StepAudit::report() {
  if (evidence_) outbox_.report(messages::Audit{*evidence_});
}

bool StepAudit::replay_due() const {
  return on_trial() && position_.generation->trial->replay && replayed_ != position_.number();
}

int64_t StepAudit::begin_replay() {
  replayed_ = position_.number();
  return *position_.generation->trial->replay;
}

}  // namespace elinvar
