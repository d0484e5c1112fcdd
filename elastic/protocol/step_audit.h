#pragma once
// What a member computes for the audit of a step, what it says of it, and whether all that was said agrees
// (PROTOCOL.md, "Audit"; the decisions are pure functions in elastic/audit/audit.h).
#include <optional>

#include "elastic/protocol/exchange.h"
#include "elastic/protocol/member_outbox.h"

namespace elinvar {

class StepAudit {
 public:
  StepAudit(const AuditOptions& options, int vranks, const MemberPosition& position, MemberOutbox& outbox);

  bool audits() const;    // whether the present step is audited
  bool on_trial() const;  // whether it is a trial, in which everybody computes what is audited
  // A virtual rank whose gradient is to be computed here although somebody computes, or has computed, it.
  std::optional<int> due_vrank() const;
  // Whether the gradient of this virtual rank is one that is compared: then its digest is wanted.
  bool compares(int64_t step, int vrank) const;

  void say_state(const Digest& state);                     // the digest of the state before the step
  void say_gradient(int vrank, const RankGradient& leaf);  // if it is one that is compared
  void say_sums(const std::vector<SumClaim>& sums) { claims_.sums = sums; }
  // What goes with this member's part of the trailer, if the step is audited; of sums there is nothing to say yet.
  std::optional<AuditClaims> claims() const;
  // Of the sum of a bucket that the exchange of this step is to audit, if it has so many buckets.
  std::optional<SumAudit> sum_audit(int buckets);
  enum class Outcome { agreed, disagreed, reported };
  // Whether everything said in a complete exchange agrees; in a trial nothing does. After `disagreed` the step is not
  // completed before a fence, report() tells the coordinator, and further calls return `reported`.
  Outcome judge(const Exchange& exchange, int buckets);
  void report();  // tells the evidence, if there is any: again too, since the coordinator may be another one

  void fence() { evidence_.reset(); }
  void next_step() { claims_ = {}; }
  // In a trial that begins with a replay: whether that is still to be made, and from which checkpoint on.
  bool replay_due() const;
  int64_t begin_replay();

 private:
  AuditRoles roles(int buckets) const;

  AuditOptions options_;
  int vranks_;
  const MemberPosition& position_;
  MemberOutbox& outbox_;
  AuditClaims claims_;     // about step `completed`, in whatever generations
  int64_t testified_ = 0;  // the last generation in which a gradient was compared
  int64_t replayed_ = 0;   // the last generation that began with a replay
  std::optional<Evidence> evidence_;
};

}  // namespace elinvar
