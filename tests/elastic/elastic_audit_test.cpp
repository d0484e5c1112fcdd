// Audits: the decisions alone, and in the simulator, where bits flip in audited data while workers join, leave and die.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "comm/packet.h"
#include "elastic/audit/audit.h"
#include "elastic/protocol/message.h"
#include "tests/elastic/simulator/random_schedules.h"

namespace elinvar {
namespace {

using What = Verdict::What;
using Stage = Evidence::Stage;

Digest d(uint64_t n) { return {n, ~n}; }

Evidence about(Stage stage, const std::vector<AuditClaims>& claims) {
  Evidence e{.stage = stage, .step = 8, .vrank = 3, .bucket = 2, .witnesses = {}, .received = {}};
  for (size_t i = 0; i < claims.size(); ++i) e.witnesses.push_back({static_cast<int>(i) + 1, claims[i]});
  return e;
}

AuditClaims leaves(std::vector<Digest> digests) { return {.states = {d(0)}, .leaves = std::move(digests), .sums = {}}; }

Verdict judged(Stage stage, const std::vector<AuditClaims>& claims) {
  const Evidence evidence = about(stage, claims);
  const Message received = message_of(packet_of({.payload = messages::Audit{evidence}}, 1));
  const Verdict verdict = judge(received.as<messages::Audit>()->evidence);
  EXPECT_EQ(verdict.what, judge(evidence).what);
  return verdict;
}

TEST(Audit, WhoContradictsItselfIsGuilty) {
  for (const Stage stage : {Stage::audit, Stage::trial}) {
    const Verdict verdict = judged(stage, {leaves({d(1), d(1)}), leaves({d(2), d(1)}), leaves({d(1)})});
    EXPECT_EQ(verdict.what, What::guilty);
    EXPECT_EQ(verdict.workers, std::vector<int>{2});
    EXPECT_EQ(verdict.reason,
              "worker 2 contradicts itself: rank gradient 3 of update 9 was 00000000, and then 00000000");
  }
  EXPECT_EQ(judged(Stage::trial, {leaves({d(1), d(2)}), leaves({d(2), d(1)})}).workers, (std::vector<int>{1, 2}));
}

TEST(Audit, OneAgainstMoreThanHalfIsGuilty) {
  const uint64_t a = uint64_t{0x1a2b3c4d} << 32, b = uint64_t{0x5e6f7081} << 32;
  const std::vector<AuditClaims> claims = {leaves({d(b)}), leaves({d(a), d(a)}), leaves({d(b), d(b)})};
  EXPECT_EQ(judged(Stage::audit, claims).what, What::try_all);
  const Verdict verdict = judged(Stage::trial, claims);
  EXPECT_EQ(verdict.what, What::guilty);
  EXPECT_EQ(verdict.workers, std::vector<int>{2});
  EXPECT_EQ(verdict.reason, "rank gradient 3 of update 9: worker 2 has 1a2b3c4d, workers 1 and 3 have 5e6f7081");
}

TEST(Audit, OneAgainstOneIsReplayedAndThenUndecided) {
  const std::vector<AuditClaims> firm = {leaves({d(1), d(1)}), leaves({d(2), d(2)})};
  EXPECT_EQ(judged(Stage::trial, firm).what, What::replay);
  const Verdict verdict = judged(Stage::replay, firm);
  EXPECT_EQ(verdict.what, What::undecided);
  EXPECT_EQ(verdict.workers, (std::vector<int>{1, 2}));
  EXPECT_EQ(judged(Stage::trial, {leaves({d(1)}), leaves({d(1)}), leaves({d(2)}), leaves({d(2)})}).what, What::replay);
}

// Workers 1 and 2 have computed the rank gradient together, and worker 2 is the auditor, too: what it has damaged in
// the joint result is not what it computes alone.
TEST(Audit, WhatSeveralHaveComputedTogetherBlamesNobody) {
  AuditClaims first{.states = {d(0)}, .leaves = {}, .sums = {}, .together = d(1)},
      second{.states = {d(0)}, .leaves = {d(1)}, .sums = {}, .together = d(1)};
  EXPECT_EQ(judged(Stage::audit, {first, second}).what, What::agreed);
  second.together = d(2);
  EXPECT_EQ(judged(Stage::audit, {first, second}).what, What::try_all);
  first.together = d(2);
  EXPECT_EQ(judged(Stage::audit, {first, second}).what, What::try_all);
  first.leaves = {d(1)};
  second.leaves = {d(1), d(1)};
  EXPECT_EQ(judged(Stage::trial, {first, second}).what, What::agreed);
}

// A rank gradient that is computed with a damaged state differs because of the state.
TEST(Audit, StatesAreComparedBeforeGradients) {
  AuditClaims sound{.states = {d(1)}, .leaves = {d(5)}, .sums = {}},
      damaged{.states = {d(2)}, .leaves = {d(6)}, .sums = {}};
  EXPECT_EQ(judged(Stage::trial, {damaged, sound, sound}).workers, std::vector<int>{1});
  EXPECT_EQ(judged(Stage::trial, {damaged, sound}).what, What::replay);
  AuditClaims again = damaged;
  again.states.push_back(d(1));
  const Verdict verdict = judged(Stage::replay, {again, sound});
  EXPECT_EQ(verdict.what, What::guilty);
  EXPECT_EQ(verdict.workers, std::vector<int>{1});
  // An old fault cannot be attributed to a worker.
  AuditClaims other = sound;
  other.states.push_back(d(3));
  again.states.back() = d(3);
  EXPECT_EQ(judged(Stage::replay, {again, other}).what, What::undecided);
}

// With ZeRO two workers have the parameters of a third, or of one of the two.
TEST(Audit, StatesThatDependOnEachOtherHaveNoMajority) {
  const AuditClaims one{.states = {d(1)}, .leaves = {d(5)}, .sums = {}},
      other{.states = {d(2)}, .leaves = {d(6)}, .sums = {}};
  const Evidence states = about(Stage::trial, {one, other, one});
  EXPECT_EQ(judge(states).workers, std::vector<int>{2});
  const Verdict verdict = judge(states, /*independent=*/false);
  EXPECT_EQ(verdict.what, What::replay);
  EXPECT_EQ(verdict.workers, (std::vector<int>{1, 2, 3}));
  const Evidence gradients = about(Stage::trial, {leaves({d(1)}), leaves({d(2)}), leaves({d(1)})});
  EXPECT_EQ(judge(gradients, /*independent=*/false).workers, std::vector<int>{2});
}

TEST(Audit, ASumIsJudgedByWhatWasAddedUp) {
  const auto sums = [](std::vector<SumClaim> claims) {
    return AuditClaims{.states = {}, .leaves = {d(1)}, .sums = std::move(claims)};
  };
  const SumClaim right{d(1), d(2)}, wrong{d(1), d(3)}, other{d(4), d(5)};
  EXPECT_EQ(judged(Stage::trial, {sums({wrong, right}), sums({right})}).workers, std::vector<int>{1});
  EXPECT_EQ(judged(Stage::trial, {sums({other, right}), sums({right})}).what, What::agreed);
  EXPECT_EQ(judged(Stage::trial, {sums({right}), sums({wrong}), sums({right})}).workers, std::vector<int>{2});
  EXPECT_EQ(judged(Stage::trial, {sums({right}), sums({other}), sums({right})}).what, What::try_all);
  Evidence e = about(Stage::audit, {sums({right}), sums({})});
  EXPECT_EQ(judge(e).what, What::agreed);
  e.received = right.sum;
  EXPECT_EQ(judge(e).what, What::agreed);
  e.received = wrong.sum;
  EXPECT_EQ(judge(e).what, What::try_all);
}

Generation generation_of(int members, int vranks) {
  Generation g{.number = 1, .members = {}, .reason = ""};
  const auto shares = assign(vranks, std::vector<double>(static_cast<size_t>(members), 1.0));
  for (int m = 0; m < members; ++m)
    g.members.push_back({.id = m + 1,
                         .peer = static_cast<PeerId>(m + 1),
                         .endpoint = "",
                         .share = shares[static_cast<size_t>(m)],
                         .first_share = shares[static_cast<size_t>(m)]});
  return g;
}

TEST(Audit, EveryGradientSumAndWorkerHasItsTurn) {
  const AuditOptions options{.every = 3, .seed = 7};
  EXPECT_FALSE(audited({}, 2));
  const Generation g = generation_of(4, 6);
  const std::vector<int> adders = {0, 1, 2, 3, 0};
  std::set<int> vranks, buckets, owners, auditors, checkers;
  for (int64_t step = 0; step < 300; ++step) {
    ASSERT_EQ(audited(options, step), step % 3 == 2);
    const AuditRoles roles = audit_roles(options, g, step, 6, adders);
    EXPECT_EQ(roles.vrank, audited_vrank(options, step, 6));
    EXPECT_TRUE(contains(g.share(roles.owner, step), roles.vrank));
    EXPECT_NE(roles.auditor, roles.owner);
    EXPECT_EQ(roles.adder, adders[static_cast<size_t>(roles.bucket)]);
    EXPECT_NE(roles.checker, roles.adder);
    vranks.insert(roles.vrank);
    buckets.insert(roles.bucket);
    owners.insert(roles.owner);
    auditors.insert(roles.auditor);
    checkers.insert(roles.checker);
    // A death does not change the roles of workers that it does not concern.
    Generation fewer = g;
    for (int m = 3; m >= 0; --m)
      if (m != roles.owner && m != roles.auditor) {
        fewer.members.erase(fewer.members.begin() + m);
        break;
      }
    const int auditor = audit_roles(options, fewer, step, 6, adders).auditor;
    EXPECT_EQ(fewer.members[static_cast<size_t>(auditor)].id, g.members[static_cast<size_t>(roles.auditor)].id);
  }
  EXPECT_EQ(vranks.size(), 6u);
  EXPECT_EQ(buckets.size(), 5u);
  for (const std::set<int>& members : {owners, auditors, checkers}) EXPECT_EQ(members.size(), 4u);

  const AuditRoles spare = audit_roles(options, generation_of(4, 3), 5, 3, std::vector<int>{0});
  EXPECT_TRUE(generation_of(4, 3).members[static_cast<size_t>(spare.auditor)].share.empty());
  const AuditRoles alone = audit_roles(options, generation_of(1, 3), 5, 3, std::vector<int>{0});
  EXPECT_EQ(alone.auditor, alone.owner);
  EXPECT_EQ(alone.bucket, -1);
}

TEST(Audit, ASumIsNotCheckedByItsOwner) {
  const AuditOptions options{.every = 1, .seed = 7};
  const Generation g = generation_of(4, 6);
  const std::vector<int> adders = {2, 2, 0, 2, 2};
  for (int64_t step = 0; step < 100; ++step) {
    const AuditRoles roles = audit_roles(options, g, step, 6, adders);
    EXPECT_EQ(roles.adder, adders[static_cast<size_t>(roles.bucket)]);
    EXPECT_NE(roles.checker, roles.adder);
  }
}

// With tensor parallelism one of the same replica would audit its own part of the rank gradient.
TEST(Audit, TheAuditorIsOfAnotherModelReplicaIfThereIsOne) {
  const AuditOptions options{.every = 1, .seed = 7};
  for (const int replicas : {1, 2, 4}) {
    Generation g = generation_of(4, 8);
    g.shards = 4;
    const int size = 4 / replicas;
    for (int m = 0; m < 4; ++m) {
      GenerationMember& member = g.members[static_cast<size_t>(m)];
      member.place = {m / size, {m % size * replicas, (m % size + 1) * replicas}};
      member.share = member.first_share = {{m / size * 8 / replicas, (m / size + 1) * 8 / replicas}};
    }
    std::set<int> auditors;
    for (int64_t step = 0; step < 100; ++step) {
      const AuditRoles roles = audit_roles(options, g, step, 8);
      ASSERT_TRUE(roles.owner < 4 && contains(g.share(roles.owner, step), roles.vrank));
      EXPECT_EQ(roles.owner % size, 0) << "the first of those that compute it";
      EXPECT_TRUE(replicas == 1 || roles.auditor / size != roles.owner / size);
      auditors.insert(roles.auditor);
    }
    EXPECT_EQ(auditors.size(), 4u) << "each has its turn";
  }
}

// Each member that computed a rank gradient together with others has its own of what all of them have.
TEST(Audit, ClaimsMadeTogetherCountInTheAuditAlone) {
  Evidence e;
  e.witnesses = {{1, {.leaves = {d(1)}, .together = d(1)}}, {2, {.together = d(2)}}, {3, {.together = d(1)}}};
  EXPECT_EQ(judge(e).what, Verdict::What::try_all);
  e.stage = Evidence::Stage::trial;
  for (Witness& witness : e.witnesses) witness.claims.leaves = {d(1)};
  EXPECT_EQ(judge(e).what, Verdict::What::agreed);
  e.witnesses[1].claims.leaves = {d(2)};
  EXPECT_EQ(judge(e).workers, std::vector<int>{2});
}

TEST(Audit, ADigestCoversAllOfAGradientThatCounts) {
  RankGradient gradient{.gradients = {Tensor::from(std::vector<float>{1, 2}, {2})},
                        .batch_statistics = {Tensor::from(std::vector<float>{3}, {1})},
                        .facts = {.loss_sum = 1, .count = 2, .correct = 1, .samples = 2, .batch = d(1)}};
  std::set<std::string> digests = {digest_of(gradient).hex()};
  RankGradient scored = gradient;
  scored.facts.attached = nlohmann::json("a score");
  EXPECT_TRUE(digests.contains(digest_of(scored).hex()));
  const auto differs = [&](auto&& change) {
    RankGradient other = gradient;
    change(other);
    EXPECT_TRUE(digests.insert(digest_of(other).hex()).second);
  };
  differs([](RankGradient& l) { l.gradients[0] = Tensor::from(std::vector<float>{1, 2.5}, {2}); });
  differs([](RankGradient& l) { l.batch_statistics[0] = Tensor::from(std::vector<float>{4}, {1}); });
  differs([](RankGradient& l) { l.batch_statistics.clear(); });
  differs([](RankGradient& l) { l.facts.loss_sum = 1.5; });
  differs([](RankGradient& l) { l.facts.count = 3; });
  differs([](RankGradient& l) { l.facts.correct = 2; });
  differs([](RankGradient& l) { l.facts.samples = 3; });
  differs([](RankGradient& l) { l.facts.batch = d(2); });
}

// --- In the simulator, which checks that every flip is caught before an update uses it, and that every evicted worker
// had a flip.

Happened expect_audits_hold(const Schedule& like, int64_t schedules = 500) {
  return expect_schedules_hold(schedules, [&](int64_t seed) {
    Schedule schedule = like;
    schedule.seed = static_cast<uint64_t>(seed);
    schedule.vranks = 1 + static_cast<int>(seed % 9);
    schedule.steps = 4 + seed / 9 % 8;
    schedule.initial_workers = 2 + static_cast<int>(seed / 5 % 4);
    schedule.min_workers = 1 + static_cast<int>(seed / 7 % 2);
    schedule.audit_every = 1 + seed / 11 % 3;
    schedule.shards = std::max(like.tp, 2 + static_cast<int>(seed % 3));
    if (like.faults > 0) schedule.faults = static_cast<int>(seed / 3 % 7);
    return schedule;
  });
}

TEST(ElasticAudit, EachFlipIsCaughtWhereNothingElseHappens) {
  const Happened happened = expect_audits_hold({.faults = 0, .flips = 1});
  EXPECT_GT(happened.flips, 300);
  EXPECT_EQ(happened.caught, happened.flips);
  EXPECT_EQ(happened.undecided, 0);
}

TEST(ElasticAudit, FlipsAreCaughtInRandomSchedules) {
  const Happened happened = expect_audits_hold({.faults = 1, .flips = 3});
  EXPECT_GT(happened.caught, 300);
}

TEST(ElasticAudit, LastingFaultsAreFoundOrTheRunEnds) {
  const Happened happened = expect_audits_hold({.faults = 1, .flips = 3, .lasting_faults = true});
  EXPECT_GT(happened.caught, 300);
  EXPECT_GT(happened.replays, 50);
  EXPECT_GT(happened.undecided, 0);
  EXPECT_GT(happened.refused, 0) << "parts of damaged states were saved";
}

TEST(ElasticAudit, FlipsAreCaughtWithAdaptiveScaling) {
  const Happened happened = expect_audits_hold({.faults = 1, .adaptive = true, .flips = 2, .lasting_faults = true});
  EXPECT_GT(happened.caught, 300);
}

// With ZeRO only the keepers of a bucket use its sum, but all members compare it if it is audited.
TEST(ElasticAudit, EachFlipIsCaughtWithShardedState) {
  const Happened happened = expect_audits_hold({.faults = 0, .flips = 1, .zero = 1});
  EXPECT_GT(happened.flips, 300);
  EXPECT_EQ(happened.caught, happened.flips);
  EXPECT_EQ(happened.undecided, 0);
}

TEST(ElasticAudit, FlipsAreCaughtInRandomSchedulesWithShardedState) {
  const Happened happened = expect_audits_hold({.faults = 1, .flips = 3, .zero = 1});
  EXPECT_GT(happened.caught, 300);
}

// Whose state is right nobody can tell where one keeper of two differs: all members restore a checkpoint. A fault that
// comes again ends the run.
TEST(ElasticAudit, LastingFaultsWithShardedStateAreFoundOrACheckpointIsRestored) {
  const Happened happened = expect_audits_hold({.faults = 1, .flips = 3, .lasting_faults = true, .zero = 1});
  EXPECT_GT(happened.caught, 100);
  EXPECT_GT(happened.restored, 10);
  EXPECT_EQ(happened.replays, 0);
}

// With tensor parallelism a wrong rank gradient accuses none of those that computed it together: any of them may have
// sent wrong values, or got them. All compute it again alone, and then make the step anew.
Happened expect_audits_of_replicas_hold(const Schedule& like) {
  const Happened happened = expect_audits_hold(like, /*schedules=*/300);
  EXPECT_GT(happened.exchanged, 10000);
  EXPECT_GT(happened.tried, 100);
  EXPECT_GT(happened.caught, 100) << "wrong sums have one author";
  return happened;
}

TEST(ElasticAudit, FlipsAmongPairsAccuseNobodyElse) {
  const Happened happened = expect_audits_of_replicas_hold({.faults = 0, .flips = 1, .tp = 2});
  EXPECT_GT(happened.tried, happened.flips * 4 / 5) << "some flips change no gradient";
  EXPECT_LT(happened.caught, happened.flips * 4 / 5);
  EXPECT_EQ(happened.undecided, 0);
}

TEST(ElasticAudit, FlipsAmongTriplesAccuseNobodyElseInRandomSchedules) {
  expect_audits_of_replicas_hold({.faults = 1, .flips = 3, .tp = 3});
}

TEST(ElasticAudit, LastingFaultsAmongPairsAreFoundOrTheRunEnds) {
  const Happened happened = expect_audits_of_replicas_hold({.faults = 1, .flips = 3, .lasting_faults = true, .tp = 2});
  EXPECT_GT(happened.replays, 30);
}

TEST(ElasticAudit, LastingFaultsAmongTriplesAreFoundOrTheRunEnds) {
  const Happened happened = expect_audits_of_replicas_hold({.faults = 1, .flips = 3, .lasting_faults = true, .tp = 3});
  EXPECT_GT(happened.replays, 30);
}

TEST(ElasticAudit, FlipsAmongPairsWithoutWholeGradientsAccuseNobodyElse) {
  expect_audits_of_replicas_hold({.faults = 1, .flips = 3, .zero = 2, .tp = 2});
}

// In a trial each member fetches all parameters.
TEST(ElasticAudit, EachFlipIsCaughtWithShardedParameters) {
  const Happened happened = expect_audits_hold({.faults = 0, .flips = 1, .zero = 3}, /*schedules=*/150);
  EXPECT_GT(happened.flips, 80);
  EXPECT_EQ(happened.caught, happened.flips);
  EXPECT_EQ(happened.undecided, 0);
}

TEST(ElasticAudit, FlipsAmongStagesWithShardedParametersAccuseNobodyElseInRandomSchedules) {
  const Happened happened =
      expect_audits_hold({.faults = 1, .flips = 3, .zero = 3, .tp = 2, .pp = 2}, /*schedules=*/100);
  EXPECT_GT(happened.tried, 30);
  EXPECT_GT(happened.caught, 15);
}

// With pipeline parallelism a wrong input spreads over stages.
TEST(ElasticAudit, FlipsAmongStagesAccuseNobodyElse) {
  const Happened happened = expect_audits_of_replicas_hold({.faults = 0, .flips = 1, .tp = 2, .pp = 2});
  EXPECT_GT(happened.tried, happened.flips * 4 / 5);
  EXPECT_LT(happened.caught, happened.flips * 4 / 5);
  EXPECT_EQ(happened.undecided, 0);
}

TEST(ElasticAudit, FlipsAmongStagesWithATiedSegmentAccuseNobodyElseInRandomSchedules) {
  const Happened happened = expect_audits_hold({.faults = 1, .flips = 3, .pp = 3, .tied = true}, /*schedules=*/300);
  EXPECT_GT(happened.tried, 100);
  EXPECT_GT(happened.caught, 50);
}

TEST(ElasticAudit, LastingFaultsAmongStagesAreFoundOrTheRunEnds) {
  const Happened happened =
      expect_audits_of_replicas_hold({.faults = 1, .flips = 3, .lasting_faults = true, .tp = 2, .pp = 2, .tied = true});
  EXPECT_GT(happened.replays, 30);
}

}  // namespace
}  // namespace elinvar
