#include "elastic/protocol/step_audit.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::Sent;
using Outcome = StepAudit::Outcome;

constexpr AuditOptions kEachStep{.every = 1, .seed = 7};
constexpr int kAuditedVranks = 4;

RankGradient gradient(float value) {
  return {.gradients = {Tensor::full({3}, value)}, .facts = {.count = 1, .samples = 1}};
}

struct Audited : MemberParts {
  explicit Audited(int members = 2, int index = 0) : MemberParts(members, index, /*first_step=*/1) {}
  StepAudit audit{kEachStep, kAuditedVranks, position, outbox};
  int vrank = audited_vrank(kEachStep, 1, kAuditedVranks);
};

TEST(StepAudit, TheAuditorComputesOneGradientMore) {
  const AuditRoles roles = audit_roles(kEachStep, MemberParts::generation(1, 2, 1), 1, kAuditedVranks);
  ASSERT_NE(roles.auditor, roles.owner);
  Audited owner(2, roles.owner), auditor(2, roles.auditor);
  EXPECT_EQ(owner.audit.due_vrank(), std::nullopt);
  EXPECT_EQ(auditor.audit.due_vrank(), roles.vrank);
  auditor.audit.say_gradient(roles.vrank, gradient(1));
  EXPECT_EQ(auditor.audit.due_vrank(), std::nullopt) << "it has said so";
  ASSERT_TRUE(auditor.audit.claims());
  EXPECT_EQ(auditor.audit.claims()->leaves.size(), 1u);
  auditor.audit.next_step();
  EXPECT_TRUE(auditor.audit.claims()->leaves.empty());
}

TEST(StepAudit, TheAuditorOfWhatItComputesWithOthersComputesItAloneAsWell) {
  const AuditRoles roles = audit_roles(kEachStep, MemberParts::generation(1, 2, 1), 1, kAuditedVranks);
  Audited at(2, roles.auditor);
  at.audit.say_together(roles.vrank, digest_of(gradient(2)));
  EXPECT_EQ(at.audit.due_vrank(), roles.vrank);
  at.audit.say_gradient(roles.vrank, gradient(1));
  EXPECT_EQ(at.audit.due_vrank(), std::nullopt);
  EXPECT_EQ(at.audit.claims()->leaves, std::vector<Digest>{digest_of(gradient(1))});
  EXPECT_EQ(at.audit.claims()->together, digest_of(gradient(2)));
  at.audit.fence();
  EXPECT_EQ(at.audit.claims()->together, std::nullopt) << "it is computed again, perhaps by others";
  EXPECT_EQ(at.audit.claims()->leaves.size(), 1u);
  at.position.promised = 2;
  at.audit.say_together(roles.vrank, digest_of(gradient(2)));
  EXPECT_EQ(at.audit.claims()->together, std::nullopt) << "it comes too late";
}

TEST(StepAudit, NothingIsAuditedBeforeTheGenerationBeginsNorAfterTheLastUpdate) {
  Audited at;
  EXPECT_TRUE(at.audit.audits());
  EXPECT_TRUE(at.audit.compares(1, at.vrank));
  EXPECT_FALSE(at.audit.compares(1, (at.vrank + 1) % kAuditedVranks));
  EXPECT_FALSE(at.audit.compares(2, at.vrank)) << "another step";
  at.position.completed = 0;
  EXPECT_FALSE(at.audit.audits());
  at.position.completed = at.position.steps;
  EXPECT_FALSE(at.audit.audits());
  EXPECT_EQ(at.audit.claims(), std::nullopt);
}

// Any of those that computed it may be at fault (tensor parallelism).
TEST(StepAudit, AClaimAboutWhatSeveralComputedIsOneOfItsOwn) {
  Audited at;
  const auto claims = [&] { return *at.audit.claims(); };
  at.audit.say_together(at.vrank, digest_of(gradient(1)));
  EXPECT_EQ(claims().together, digest_of(gradient(1)));
  EXPECT_TRUE(claims().leaves.empty()) << "so it contradicts nothing";
  at.audit.say_gradient(at.vrank, gradient(3));
  EXPECT_EQ(claims().leaves, std::vector<Digest>{digest_of(gradient(3))}) << "it has made this one alone";
  EXPECT_EQ(claims().together, digest_of(gradient(1)));
  at.audit.fence();
  EXPECT_EQ(claims().together, std::nullopt) << "others may compute it now";
  EXPECT_EQ(claims().leaves.size(), 1u);
  at.audit.say_together(at.vrank, digest_of(gradient(5)));
  EXPECT_EQ(claims().together, digest_of(gradient(5)));
  at.audit.next_step();
  EXPECT_EQ(claims().together, std::nullopt);
  at.audit.say_together((at.vrank + 1) % kAuditedVranks, digest_of(gradient(1)));
  EXPECT_EQ(claims().together, std::nullopt) << "another virtual rank";
}

TEST(StepAudit, AnAuditorThatTookPartComputesItAloneToo) {
  const AuditRoles roles = audit_roles(kEachStep, MemberParts::generation(1, 2, 1), 1, kAuditedVranks);
  Audited auditor(2, roles.auditor), owner(2, roles.owner);
  for (Audited* at : {&auditor, &owner}) at->audit.say_together(roles.vrank, digest_of(gradient(1)));
  EXPECT_EQ(owner.audit.due_vrank(), std::nullopt);
  EXPECT_EQ(auditor.audit.due_vrank(), roles.vrank);
  auditor.audit.say_gradient(roles.vrank, gradient(2));
  EXPECT_EQ(auditor.audit.due_vrank(), std::nullopt);
  EXPECT_EQ(auditor.audit.claims()->leaves, std::vector<Digest>{digest_of(gradient(2))});
}

TEST(StepAudit, InATrialAMemberComputesItAlone) {
  Audited at;
  at.position.generation->number = at.position.promised = 2;
  at.position.generation->trial = Trial{};
  at.audit.say_together(at.vrank, digest_of(gradient(2)));
  EXPECT_EQ(at.audit.due_vrank(), at.vrank);
  at.audit.say_gradient(at.vrank, gradient(3));
  EXPECT_EQ(at.audit.due_vrank(), std::nullopt);
  EXPECT_EQ(at.audit.claims()->leaves, std::vector<Digest>{digest_of(gradient(3))});
}

// A member that is alone makes its claims twice; a second claim that differs is detected.
struct Alone : Audited {
  Alone() : Audited(1, 0) { position.generation->members[0].share = {{0, kAuditedVranks}}; }
  Outcome judged() {
    Exchange exchange({.vranks = kAuditedVranks});
    messages::TrailerPart part{.held = 1, .audit = audit.claims()};
    for (int v = 0; v < kAuditedVranks; ++v) part.facts[v] = {};
    exchange.contribute({}, part, {}, [](int, Payload) {});
    return audit.judge(exchange);
  }
};

TEST(StepAudit, WhatAgreesPasses) {
  Alone at;
  at.audit.say_state({1, 2});
  for (int i = 0; i < 2; ++i) at.audit.say_gradient(at.vrank, gradient(1));
  EXPECT_EQ(at.judged(), Outcome::agreed);
  at.audit.report();
  EXPECT_EQ(at.sent(), Sent{});
}

TEST(StepAudit, WhatDiffersIsReportedUntilAFence) {
  Alone at;
  at.audit.say_state({1, 2});
  at.audit.say_gradient(at.vrank, gradient(1));
  at.audit.say_gradient(at.vrank, gradient(2));
  EXPECT_EQ(at.judged(), Outcome::disagreed);
  EXPECT_EQ(at.judged(), Outcome::reported) << "nothing is judged twice";
  for (int i = 0; i < 2; ++i) {
    at.audit.report();
    EXPECT_EQ(at.sent(), Sent{"audit>99"});
  }
  EXPECT_EQ(at.last.as<messages::Audit>()->evidence.step, 1);
  at.audit.fence();
  at.audit.report();
  EXPECT_EQ(at.sent(), Sent{});
}

TEST(StepAudit, ATrialNeverPassesAndEverybodyComputes) {
  Alone at;
  at.position.generation->trial = Trial{};
  EXPECT_TRUE(at.audit.on_trial());
  EXPECT_EQ(at.audit.due_vrank(), at.vrank);
  at.audit.say_gradient(at.vrank, gradient(1));
  EXPECT_EQ(at.audit.due_vrank(), std::nullopt);
  EXPECT_EQ(at.judged(), Outcome::disagreed);
}

TEST(StepAudit, ATrialMayBeginWithOneReplay) {
  Audited at;
  EXPECT_FALSE(at.audit.replay_due());
  at.position.generation->trial = Trial{.replay = 0};
  EXPECT_TRUE(at.audit.replay_due());
  EXPECT_EQ(at.audit.begin_replay(), 0);
  EXPECT_FALSE(at.audit.replay_due());
  at.position.generation->number = 2;
  EXPECT_TRUE(at.audit.replay_due()) << "another trial";
}

}  // namespace
}  // namespace elinvar
