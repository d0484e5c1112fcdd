// A member: what it computes for an audit, and what it tells of it (PROTOCOL.md, "Audit").
#include "elastic/protocol/member.h"

namespace elinvar {

bool Member::audits() const {
  return audited(options_.audit, completed_) && !last() && active() && completed_ >= generation_->first_step;
}

AuditRoles Member::audit_roles() const {
  const int buckets = buckets_ ? buckets_->count() : 0;
  return elinvar::audit_roles(options_.audit, *generation_, completed_, options_.vranks, buckets);
}

bool Member::on_trial() const { return generation_ && generation_->trial && completed_ == generation_->first_step; }

// A leaf of this step that is to be computed here although it is, or was, computed by somebody.
std::optional<int> Member::leaf_to_audit() const {
  if (!audits()) return std::nullopt;
  const AuditRoles roles = audit_roles();
  const size_t wanted = roles.owner == me_ ? 2 : 1;  // alone it says the same twice
  const bool due =
      on_trial() ? testified_ != generation_->number : roles.auditor == me_ && claims_.leaves.size() < wanted;
  return due ? std::optional(roles.vrank) : std::nullopt;
}

bool Member::audits_leaf(int64_t step, int vrank) const {
  return step == completed_ && audited(options_.audit, step) && !last() &&
         vrank == audited_vrank(options_.audit, step, options_.vranks);
}

void Member::testify(int vrank, const RankGradient& leaf) {
  if (!audits_leaf(completed_, vrank)) return;
  claims_.leaves.push_back(leaf.digest ? *leaf.digest : digest_of(leaf));
  testified_ = generation();
}

// With its part of the trailer; of sums it is not known yet what there is to say.
std::optional<AuditClaims> Member::claims_to_tell() const {
  if (!audits()) return std::nullopt;
  return AuditClaims{.states = claims_.states, .leaves = claims_.leaves, .sums = {}};
}

void Member::audit_exchange() {
  evidence_.reset();
  if (!audits() || members() < 2) return;
  const AuditRoles roles = audit_roles();
  if (roles.bucket < 0) return;
  exchange_->audit(SumAudit(SumAudit::roles_of(roles, on_trial(), members()), me_, claims_.sums));
}

// Nobody completes a step that is audited before all that was said of it agrees; in a trial nobody does at all.
bool Member::passes_audit() {
  if (!audits()) return true;
  if (evidence_) return false;
  const AuditRoles roles = audit_roles();
  Evidence evidence{.stage = !on_trial()                  ? Evidence::Stage::audit
                             : generation_->trial->replay ? Evidence::Stage::replay
                                                          : Evidence::Stage::trial,
                    .step = completed_,
                    .vrank = roles.vrank,
                    .bucket = roles.bucket,
                    .witnesses = {},
                    .received = exchange_->received()};
  for (size_t m = 0; m < generation_->members.size(); ++m)
    evidence.witnesses.push_back({generation_->members[m].id, exchange_->trailer().audit.at(m)});
  if (exchange_->audit())
    for (const auto& [m, sums] : exchange_->audit()->heard())
      evidence.witnesses[static_cast<size_t>(m)].claims.sums = sums;
  if (!on_trial() && judge(evidence).what == Verdict::What::agreed) return true;
  evidence_ = std::move(evidence);
  tell_facts();  // of the steps before: the run may end with it
  report(messages::Audit{*evidence_});
  return false;
}

Member::Replay Member::begin_replay() {
  replayed_ = generation();
  return {.from = *generation_->trial->replay, .step = completed_};
}

}  // namespace elinvar
