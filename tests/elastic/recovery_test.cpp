// Where the optimizer's state is after a fence (ZeRO), from the answers of the workers.
#include "elastic/protocol/recovery.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

struct Answers {
  // A worker that has completed this many steps answers that it holds these shards.
  void add(PeerId peer, int64_t completed, std::optional<messages::HeldShards> shards) {
    Worker& worker = roster[peer] = {.peer = peer, .state = Worker::State::member, .completed = completed};
    worker.fenced_at = completed;
    worker.fenced = messages::Fenced{.active = true, .loaded = true, .keeps = true};
    worker.fenced->shards = std::move(shards);
    peers.insert(peer);
  }
  Recovery recovery() const { return recovery_after(roster, peers); }

  Roster roster;
  std::set<PeerId> peers;
};

messages::HeldShards of_generation(int64_t number, std::vector<int> ids) {
  return {.generation = number, .deal = {.ids = std::move(ids), .copies = 2}};
}
const messages::HeldShards kWhole{.whole = true};

TEST(Recovery, TheNewestCommittedKeepersHoldTheState) {
  Answers answers;
  answers.add(1, 6, of_generation(4, {1, 2}));
  answers.add(2, 7, of_generation(6, {2, 3}));  // it alone knows of the commit
  answers.add(3, 6, kWhole);
  answers.add(4, 6, std::nullopt);
  const Recovery recovery = answers.recovery();
  EXPECT_EQ(recovery.members.size(), 4u);
  EXPECT_FALSE(recovery.sharding.whole);
  EXPECT_EQ(recovery.sharding.holders, (BucketDeal{.ids = {2, 3}, .copies = 2}));
  EXPECT_TRUE(recovery.restored.empty());
}

TEST(Recovery, WithoutACommitTheStateIsThatOfThoseWhoRestoredIt) {
  Answers answers;
  answers.add(1, 6, kWhole);
  answers.add(2, 6, std::nullopt);
  answers.add(3, 6, kWhole);
  const Recovery recovery = answers.recovery();
  EXPECT_TRUE(recovery.sharding.whole);
  EXPECT_EQ(recovery.restored, (std::vector<PeerId>{1, 3}));
}

// It is too far behind to go on, and so is what it holds.
TEST(Recovery, WhatAWorkerBehindHoldsDoesNotCount) {
  Answers answers;
  answers.add(1, 9, std::nullopt);
  answers.add(2, 6, of_generation(4, {1, 2}));
  const Recovery recovery = answers.recovery();
  EXPECT_EQ(recovery.members, std::vector<PeerId>{1});
  EXPECT_TRUE(recovery.sharding.whole);
  EXPECT_TRUE(recovery.restored.empty());
}

// Members that have made the next update do not have the values of the one before.
TEST(Recovery, WhoLacksValuesOfTheUpdateBeforeTheNewestStepCannotGoOn) {
  for (const int64_t newest : {6, 7}) {
    Answers answers;
    answers.add(1, newest, of_generation(4, {1}));
    answers.add(2, 6, std::nullopt);
    answers.roster.at(2).fenced->lacks_values = true;
    EXPECT_EQ(answers.recovery().members, newest == 6 ? (std::vector<PeerId>{1, 2}) : std::vector<PeerId>{1});
  }
}

}  // namespace
}  // namespace elinvar
