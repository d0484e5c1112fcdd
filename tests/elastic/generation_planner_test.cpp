// The records that a coordinator makes: the first one, planned changes, and recoveries.
#include <gtest/gtest.h>

#include "tests/elastic/planner.h"

namespace elinvar {
namespace {

using test::Kinds;
using test::kZero;
using test::Planner;
using test::ShardedPlanner;
using Phase = JobState::Phase;
using State = Worker::State;

TEST(GenerationPlanner, TheFirstWaitsForAsManyAsAreExpectedButNotForEver) {
  for (const Seconds now : {29, 30}) {
    Planner p({.steps = 100, .initial_workers = 3, .min_workers = 2, .plan = {.vranks = 8}, .start_timeout = 30});
    p.job.add(8, State::ready).id = 0;
    p.job.add(5, State::ready).id = 0;
    EXPECT_FALSE(p.planner.start(now));
    EXPECT_EQ(p.job.state.phase, now < 30 ? Phase::starting : Phase::running);
    if (now < 30) continue;
    ASSERT_EQ(p.newest().members.size(), 2u);
    EXPECT_EQ(p.newest().members[0].peer, 5u);
    EXPECT_EQ(p.newest().members[1].id, 2);
    EXPECT_EQ(p.newest().next_id, 3);
    EXPECT_EQ(p.newest().first_step, 0);
    EXPECT_EQ(p.job.kinds_sent(8), Kinds{"start"});
  }
}

// Blind workers wait for others to send them the state: with too few others the job holds, with none it ends.
TEST(GenerationPlanner, TheFirstNeedsWorkersThatSeeTheRunDirectory) {
  Planner p({.steps = 100, .initial_workers = 3, .min_workers = 2, .plan = {.vranks = 8}, .start_timeout = 30});
  p.job.add(1, State::joining).blind = true;
  p.job.add(2, State::joining).blind = true;
  EXPECT_FALSE(p.planner.start(1));
  EXPECT_FALSE(p.job.state.ending);
  p.job.add(3, State::ready);
  EXPECT_EQ(p.planner.start(1), "too few workers see the run directory");
  p.job.state.workers.erase(3);
  p.planner.wait_for_starters(2, /*others_come=*/true, 20);
  EXPECT_FALSE(p.planner.start(49));
  EXPECT_FALSE(p.job.state.ending);
  EXPECT_FALSE(p.planner.start(50));
  EXPECT_TRUE(p.job.state.ending);
}

TEST(GenerationPlanner, ProposesOneChangeAtATime) {
  Planner p;
  p.job.run({1});
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_TRUE(p.job.world.created.empty());
  p.job.add(7, State::ready).id = 0;
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_EQ(p.newest().number, 2);
  EXPECT_EQ(p.newest().follows, 1);
  EXPECT_EQ(p.newest().first_step, -1);
  EXPECT_LT(total(p.newest().members[1].first_share), total(p.newest().members[1].share)) << "a newcomer begins late";
  EXPECT_EQ(p.job.kinds_sent(7), Kinds{"propose"});
  p.planner.ask_checkpoint();
  EXPECT_FALSE(p.planner.propose(2));
  EXPECT_EQ(p.job.world.created.size(), 1u);

  p.job.state.workers.at(1).generation = 2;
  p.job.state.workers.at(1).completed = 6;
  p.planner.switch_to_proposal(3);
  EXPECT_EQ(p.job.state.current->first_step, 6);
  EXPECT_EQ(p.job.state.workers.at(7).state, State::member);
  EXPECT_FALSE(p.planner.propose(3));
  EXPECT_TRUE(p.newest().checkpoint);
  EXPECT_EQ(p.newest().number, 3);
}

TEST(GenerationPlanner, NothingIsProposedToTrialsOrAfterTheLastStep) {
  Planner p;
  p.job.run({1});
  p.planner.ask_checkpoint();
  p.job.state.current->trial = Trial{};
  (void)p.planner.propose(1);
  p.job.state.current->trial.reset();
  p.job.state.current->stop = true;
  (void)p.planner.propose(1);
  p.job.state.current->stop = false;
  (void)p.facts.take({{.step = 100}}, 1);
  (void)p.planner.propose(1);
  EXPECT_TRUE(p.job.world.created.empty());
}

TEST(GenerationPlanner, OtherSharesAreProposedNowAndThen) {
  Planner p({.steps = 100, .plan = {.vranks = 8}, .reassign_every = 10});
  p.job.run({1, 2});
  for (GenerationMember& m : p.job.state.current->members) m.share = {{0, 4}};
  p.job.state.workers.at(1).speed = 3;
  p.job.state.workers.at(2).speed = 1;
  EXPECT_FALSE(p.planner.propose(9.9));
  EXPECT_TRUE(p.job.world.created.empty());
  EXPECT_FALSE(p.planner.propose(10));
  ASSERT_EQ(p.job.world.created.size(), 1u);
  EXPECT_EQ(total(p.newest().members[0].share), 6);
}

TEST(GenerationPlanner, AStopIsProposedWhereEverybodyLeaves) {
  Planner p;
  p.job.run({1});
  p.job.state.workers.at(1).draining = true;
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_TRUE(p.newest().stop);
  EXPECT_EQ(p.planner.stop_reason(), "every worker leaves");
  p.planner.ask_stop("a person asks");
  EXPECT_EQ(p.planner.stop_reason(), "every worker leaves");
}

TEST(GenerationPlanner, ARecordThatIsTakenNeedsAFenceOrEndsTheTerm) {
  Planner p;
  p.job.run({1});
  p.planner.ask_checkpoint();
  p.job.world.taken = {2, 3};
  EXPECT_EQ(p.planner.propose(1), "generation 2 was still made by another coordinator");
  EXPECT_EQ(p.job.state.number, 2) << "the fence has a greater number";
  EXPECT_FALSE(p.job.state.proposal);
  p.job.world.later_term = true;
  EXPECT_FALSE(p.planner.propose(1));
  ASSERT_TRUE(p.job.state.ending);
  EXPECT_EQ(p.job.state.ending->what, "superseded");
}

TEST(GenerationPlanner, LeaversStayUntilAllOthersAreInTheNextGeneration) {
  Planner p;
  p.job.run({1, 2, 3});
  p.job.state.workers.at(3).draining = true;
  (void)p.planner.propose(1);
  Worker &one = p.job.state.workers.at(1), &two = p.job.state.workers.at(2);
  one.generation = 2;
  one.completed = 5;
  p.planner.switch_to_proposal(2);
  EXPECT_EQ(p.job.state.workers.at(3).state, State::leaving);
  EXPECT_TRUE(p.planner.released().empty());
  two.generation = 2;
  two.completed = 4;
  EXPECT_TRUE(p.planner.released().empty()) << "2 lacks the result of the last step";
  two.completed = 5;
  EXPECT_EQ(p.planner.released(), test::Peers{3});
  p.job.state.steps = 4;
  EXPECT_TRUE(p.planner.released().empty()) << "after the last step it stays to the end";
}

// A newcomer that learned from it may still lack the values of the update before.
TEST(GenerationPlanner, WithShardedStateLeaversStayForOneMoreStep) {
  ShardedPlanner p;
  p.job.state.current->sharding->keepers.ids = {1, 2};
  p.job.state.workers.at(3).draining = true;
  for (auto& [peer, w] : p.job.state.workers) w.completed = 4;
  (void)p.planner.propose(1);
  ASSERT_EQ(p.newest().members.size(), 2u);
  Worker &one = p.job.state.workers.at(1), &two = p.job.state.workers.at(2);
  for (Worker* w : {&one, &two}) w->generation = 2, w->completed = 5;
  p.planner.switch_to_proposal(2);
  ASSERT_EQ(p.job.state.current->first_step, 5);
  EXPECT_TRUE(p.planner.released().empty());
  two.completed = 6;
  EXPECT_EQ(p.planner.released(), test::Peers{3});
}

TEST(GenerationPlanner, ARecoveryKeepsWhatIsComputedAndAssignsOrphans) {
  Planner p;
  p.job.run({1, 2, 3});
  p.job.add(4, State::ready);
  p.job.state.number = 5;  // the number of the fence
  p.job.state.phase = Phase::fencing;
  for (auto& [peer, w] : p.job.state.workers) w.fenced = messages::Fenced{.loaded = true, .keeps = peer == 1};
  p.job.state.workers.erase(3);
  Recovery recovery{.step = 6, .members = {1, 2}, .completed = {{1, 6}, {2, 5}, {4, 3}}};
  recovery.kept[1] = {{0, 3}};
  EXPECT_FALSE(p.planner.recover(recovery, {}, "lost worker 3", 1));
  EXPECT_EQ(p.newest().number, 5);
  EXPECT_EQ(p.newest().first_step, 6);
  EXPECT_EQ(p.newest().reason, "lost worker 3");
  EXPECT_TRUE(contains(p.newest().members[0].first_share, 2));
  EXPECT_EQ(total(p.newest().members[0].first_share) + total(p.newest().members[1].first_share), 8);
  EXPECT_EQ(p.job.state.phase, Phase::running);
  EXPECT_EQ(p.job.state.workers.at(4).state, State::joining) << "it fell behind";
  const std::vector<Message> sent = p.job.sent(2);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].as<messages::Start>()->completed, (std::map<PeerId, int64_t>{{1, 6}})) << "who has the last result";
}

// With tensor parallelism no member keeps rank gradients: replicas are formed anew.
TEST(GenerationPlanner, ARecoveryOfModelReplicasDealsEverythingAnew) {
  Planner p({.steps = 100, .arrangement = {.tp = 2}, .virtual_shards = 4, .plan = {.vranks = 8}});
  p.job.run({1, 2, 3});
  for (auto& [peer, w] : p.job.state.workers) w.fenced = messages::Fenced{.loaded = true};
  p.job.state.workers.erase(1);
  Recovery recovery{.step = 6, .members = {2, 3}, .completed = {{2, 6}, {3, 6}}};
  recovery.kept[3] = {{5, 8}};
  EXPECT_FALSE(p.planner.recover(recovery, {}, "lost worker 1", 1));
  EXPECT_EQ(p.newest().shards, 4);
  const std::vector<Interval> all = {{0, 8}};
  for (const GenerationMember& m : p.newest().members) {
    EXPECT_EQ(m.place.replica, 0);
    EXPECT_EQ(m.first_share, all) << "both compute all of them together";
    EXPECT_EQ(m.share, all);
  }
  EXPECT_EQ(p.newest().members[1].place.shards, (Interval{2, 4}));
}

TEST(GenerationPlanner, ANewcomerMakesOthersReplicasSmaller) {
  Planner p({.steps = 100, .arrangement = {.tp = 3}, .virtual_shards = 4, .plan = {.vranks = 8}});
  p.job.run({1, 2, 3});
  p.job.add(7, State::ready).id = 0;
  EXPECT_FALSE(p.planner.propose(1));
  std::vector<ReplicaPlace> places;
  for (const GenerationMember& m : p.newest().members) places.push_back(m.place);
  EXPECT_EQ(places, (std::vector<ReplicaPlace>{{0, {0, 2}}, {0, {2, 4}}, {1, {0, 2}}, {1, {2, 4}}}));
  EXPECT_EQ(total(p.newest().members[2].share), 4);
  EXPECT_EQ(p.newest().members[2].share, p.newest().members[3].share);
  EXPECT_LT(total(p.newest().members[2].first_share), 4) << "the newcomer, and the one that waits for it, begin late";
  EXPECT_EQ(p.newest().members[2].first_share, p.newest().members[3].first_share);
  Planner without;
  without.job.run({1, 2});
  without.job.add(7, State::ready).id = 0;
  EXPECT_FALSE(without.planner.propose(1));
  EXPECT_EQ(without.newest().shards, 0);
}

// A state in doubt is not saved as the one from which the run continues.
TEST(GenerationPlanner, AStopWaitsForATrial) {
  for (const bool doubted : {true, false}) {
    Planner p;
    p.job.run({1});
    p.job.state.workers.at(1).fenced = messages::Fenced{.loaded = true};
    p.planner.ask_stop("a person asks");
    const std::optional<Trial> trial = doubted ? std::optional(Trial{.replay = 2}) : std::nullopt;
    (void)p.planner.recover({.step = 6, .members = {1}, .completed = {{1, 6}}}, trial, "the audit", 1);
    EXPECT_EQ(p.newest().stop, !doubted);
    EXPECT_EQ(p.newest().checkpoint, !doubted);
    EXPECT_EQ(p.newest().trial.has_value(), doubted);
  }
}

TEST(GenerationPlanner, TheFirstMembersHaveAllOfTheState) {
  Planner p(kZero);
  p.job.add(8, State::ready).id = 0;
  p.job.add(5, State::ready).id = 0;
  EXPECT_FALSE(p.planner.start(31));
  ASSERT_TRUE(p.newest().sharding);
  EXPECT_EQ(
      *p.newest().sharding,
      (Sharding{
          .zero = 1, .keepers = {.ids = {1, 2}, .copies = 2}, .holders = {.ids = {1, 2}, .copies = 1}, .whole = true}));
  Planner without;
  without.job.add(8, State::ready).id = 0;
  EXPECT_FALSE(without.planner.start(31));
  EXPECT_FALSE(without.newest().sharding);
}

TEST(GenerationPlanner, ThePresentKeepersHoldTheStateOfAPlannedGeneration) {
  ShardedPlanner p;
  p.job.state.workers.at(2).draining = true;
  p.job.add(7, State::ready);
  EXPECT_FALSE(p.planner.propose(1));
  ASSERT_EQ(p.job.world.created.size(), 1u);
  EXPECT_EQ(p.newest().ids(), (std::vector<int>{1, 2, 3, 7}));
  EXPECT_EQ(p.newest().sharding->keepers, (BucketDeal{.ids = {1, 3, 7}, .copies = 2})) << "2 is about to leave";
  EXPECT_EQ(p.newest().sharding->holders, p.kept);
  EXPECT_FALSE(p.newest().sharding->whole);
}

TEST(GenerationPlanner, AMemberThatLeavesWithAllOthersKeepsItsState) {
  ShardedPlanner p;
  for (auto& [peer, w] : p.job.state.workers) w.draining = true;
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_TRUE(p.newest().stop);
  EXPECT_EQ(p.newest().sharding->keepers, p.kept);
}

// Before that the present keepers may lack the state that they are to keep.
TEST(GenerationPlanner, AChangeWaitsForTheFirstStepOfTheGeneration) {
  ShardedPlanner p;
  p.job.state.current->first_step = 1;
  p.planner.ask_checkpoint();
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_TRUE(p.job.world.created.empty());
  p.job.state.workers.at(2).completed = 2;
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_EQ(p.job.world.created.size(), 1u);
}

TEST(GenerationPlanner, ARecoverySaysWhoHoldsTheState) {
  const BucketDeal held{.ids = {1, 2, 4}, .copies = 2};
  for (const bool whole : {false, true}) {
    ShardedPlanner p;
    for (auto& [peer, w] : p.job.state.workers) w.fenced = messages::Fenced{.loaded = true};
    p.job.state.workers.erase(3);
    Recovery recovery{.step = 6, .members = {1, 2}, .completed = {{1, 6}, {2, 6}}};
    recovery.sharding = {.holders = held, .whole = whole};
    if (whole) recovery.restored = {2};
    EXPECT_FALSE(p.planner.recover(recovery, {}, "lost worker 3", 1));
    ASSERT_TRUE(p.newest().sharding);
    EXPECT_EQ(p.newest().sharding->keepers, (BucketDeal{.ids = {1, 2}, .copies = 2}));
    EXPECT_EQ(p.newest().sharding->whole, whole);
    if (whole) EXPECT_EQ(p.newest().sharding->holders.ids, std::vector<int>{2});
    else EXPECT_EQ(p.newest().sharding->holders, held);
  }
}

// The coordinator has not read the generation of worker 4, which its predecessor made at the end of its term.
TEST(GenerationPlanner, ANewcomerDoesNotGetTheIdOfAHolder) {
  ShardedPlanner p;
  ASSERT_EQ(p.job.state.next_id, 4);
  p.job.add(7, State::ready, 6).id = 0;
  for (auto& [peer, w] : p.job.state.workers) w.fenced = messages::Fenced{.loaded = true};
  p.job.state.workers.erase(3);
  Recovery recovery{.step = 6, .members = {1, 2, 7}, .completed = {{1, 6}, {2, 6}, {7, 6}}};
  recovery.sharding.holders = {.ids = {1, 2, 4}, .copies = 2};
  EXPECT_FALSE(p.planner.recover(recovery, {}, "another coordinator", 1));
  EXPECT_EQ(p.newest().ids(), (std::vector<int>{1, 2, 5}));
  EXPECT_EQ(p.newest().next_id, 6);
}

TEST(GenerationPlanner, StateIsLostIfNoMemberHasSomeBucket) {
  ShardedPlanner p;
  Recovery recovery{.step = 6, .members = {1, 2}};
  recovery.sharding.holders = p.kept;
  EXPECT_FALSE(p.planner.lost_state(recovery)) << "each bucket has two keepers";
  recovery.members = {1};
  EXPECT_TRUE(p.planner.lost_state(recovery));
  recovery.sharding.whole = true;
  EXPECT_TRUE(p.planner.lost_state(recovery)) << "nobody has restored it";
  recovery.restored = {1};
  EXPECT_FALSE(p.planner.lost_state(recovery));
  Planner without;
  EXPECT_FALSE(without.planner.lost_state({.step = 6, .members = {}}));
}

}  // namespace
}  // namespace elinvar
