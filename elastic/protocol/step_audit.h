#pragma once
// A member's part in the audit of a step: what it computes, what it claims, and whether all claims agree (PROTOCOL.md,
// "Audit"; the decisions are pure functions in elastic/audit/audit.h).
#include <optional>

#include "elastic/protocol/exchange.h"
#include "elastic/protocol/member_outbox.h"

namespace elinvar {

class StepAudit {
 public:
  StepAudit(const AuditOptions& options, int vranks, const MemberPosition& position, MemberOutbox& outbox);

  bool audits() const;    // whether the current step is audited
  bool on_trial() const;  // whether the step is a trial, in which all members compute the audited results
  // Returns a virtual rank whose gradient this member must compute although another member computes, or has computed,
  // it.
  std::optional<int> due_vrank() const;
  // Returns whether the gradient of this virtual rank is compared, so that its digest is needed.
  bool compares(int64_t step, int vrank) const;

  void say_state(const Digest& state);  // claims the digest of the state before the step
  // Claims the gradient's digest if it is compared.
  void say_gradient(int vrank, const RankGradient& gradient);
  void say_together(int vrank, const Digest& digest);  // .. of one that several members have computed together
  void say_sums(const std::vector<SumClaim>& sums) { claims_.sums = sums; }
  // Returns the claims for this member's part of the trailer if the step is audited. Claims about sums do not exist
  // yet.
  std::optional<AuditClaims> claims() const;
  // Returns the audit of a bucket's sum for the exchange of this step, in which these members add up the buckets.
  std::optional<SumAudit> sum_audit(std::span<const int> owners);
  enum class Outcome { agreed, disagreed, reported };
  // Judges whether all claims in a complete exchange agree; in a trial they never do. After `disagreed` the step is not
  // completed before a fence, report() sends the evidence to the coordinator, and further calls return `reported`.
  Outcome judge(const Exchange& exchange);
  void report();  // sends the evidence, if any; also repeatedly, because the coordinator may have changed

  // Gradients that members have computed together are computed again, if need be by others.
  void fence() {
    evidence_.reset();
    claims_.together.reset();
  }
  void next_step() { claims_ = {}; }
  // In a trial that begins with a replay: whether the replay is still due, and from which checkpoint it begins.
  bool replay_due() const;
  int64_t begin_replay();

 private:
  AuditRoles roles(std::span<const int> owners = {}) const;

  AuditOptions options_;
  int vranks_;
  const MemberPosition& position_;
  MemberOutbox& outbox_;
  AuditClaims claims_;     // about step `completed`, in all generations
  int64_t testified_ = 0;  // the last generation in which a gradient was compared
  int64_t replayed_ = 0;   // the last generation that began with a replay
  std::optional<Evidence> evidence_;
};

}  // namespace elinvar
