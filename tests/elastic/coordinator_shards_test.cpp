// A coordinator of workers that keep parts of the optimizer's state (ZeRO), of which some die.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"
#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using Phase = JobState::Phase;

// Workers 1, 2 and 3 of generation 1, which have completed step 5.
struct ShardedJob {
  explicit ShardedJob(int copies)
      : coordinator({.endpoint = "here",
                     .steps = 100,
                     .initial_workers = 3,
                     .arrangement = {.zero = 1, .copies = copies},
                     .plan = {.vranks = 8}},
                    world, 0, {}, 0) {
    for (const PeerId peer : {1, 2, 3})
      coordinator.receive(
          {.sender = peer, .payload = messages::Hello{.about = {.endpoint = "e", .zero = 1, .shards = 20}}}, 0);
    for (const PeerId peer : {1, 2, 3}) tell(peer, messages::Ready{0}, 0);
    for (const PeerId peer : {1, 2, 3}) tell(peer, messages::Alive{}, 6, 1);
    (void)coordinator.take_actions();
  }
  void tell(PeerId peer, Payload payload, int64_t step, int64_t generation = 0) {
    coordinator.receive({.sender = peer, .generation = generation, .step = step, .payload = std::move(payload)}, 1);
  }
  // The answer of a member of generation 1 to fence 2.
  void answer(PeerId peer) {
    messages::Fenced fenced{.promised = 2, .active = true, .loaded = true, .keeps = true};
    fenced.shards = messages::HeldShards{.generation = 1, .deal = world.created.at(0).sharding->keepers};
    tell(peer, fenced, 6, 1);
  }
  std::vector<Message> sent(PeerId peer) {
    std::vector<Message> messages;
    for (const Action& action : coordinator.take_actions())
      if (action.what == Action::What::send && action.peer == peer) messages.push_back(action.message);
    return messages;
  }
  bool has(const std::string& event) const {
    return std::any_of(world.events.begin(), world.events.end(), [&](const auto& e) { return e.first == event; });
  }

  test::RecordingWorld world;
  Coordinator coordinator;
};

TEST(CoordinatorShards, GoesOnWhileSomeWorkerHasEachBucket) {
  ShardedJob job(/*copies=*/2);
  ASSERT_EQ(job.world.created.size(), 1u);
  job.coordinator.lost(3, "it died", 1);
  job.answer(1);
  job.answer(2);
  EXPECT_FALSE(job.has("state_lost"));
  ASSERT_EQ(job.world.created.size(), 2u);
  EXPECT_EQ(job.world.created[1].first_step, 6);
  EXPECT_EQ(job.world.created[1].sharding->holders, job.world.created[0].sharding->keepers);
  EXPECT_EQ(job.world.created[1].sharding->keepers.ids, (std::vector<int>{1, 2}));
  EXPECT_EQ(job.coordinator.job().phase, Phase::running);
}

TEST(CoordinatorShards, RestoresACheckpointIfSomeBucketIsLost) {
  ShardedJob job(/*copies=*/1);
  job.coordinator.lost(3, "it died", 1);
  (void)job.coordinator.take_actions();
  job.answer(1);
  job.answer(2);
  EXPECT_TRUE(job.has("state_lost"));
  EXPECT_EQ(job.world.created.size(), 1u);
  EXPECT_EQ(job.coordinator.job().phase, Phase::starting);
  for (const Message& message : job.sent(2)) {
    const auto* welcome = message.as<messages::Welcome>();
    ASSERT_TRUE(welcome) << message.payload.kind().name;
    EXPECT_EQ(welcome->restore, 0);
    EXPECT_EQ(message.generation, 2) << "members of older generations obey it";
  }
  job.tell(1, messages::Ready{0}, 0);
  EXPECT_EQ(job.world.created.size(), 1u) << "the other is expected too";
  job.tell(2, messages::Ready{0}, 0);
  ASSERT_EQ(job.world.created.size(), 2u);
  const Generation& again = job.world.created[1];
  EXPECT_EQ(again.number, 3);
  EXPECT_EQ(again.first_step, 0);
  EXPECT_TRUE(again.sharding->whole);
  EXPECT_EQ(again.sharding->holders.ids, (std::vector<int>{1, 2}));
  EXPECT_EQ(job.coordinator.job().phase, Phase::running);
}

// A worker that dies meanwhile is not waited for.
TEST(CoordinatorShards, RestoresWithThoseThatAreLeft) {
  ShardedJob job(/*copies=*/1);
  job.coordinator.lost(3, "it died", 1);
  job.answer(1);
  job.answer(2);
  job.tell(1, messages::Ready{0}, 0);
  EXPECT_EQ(job.world.created.size(), 1u);
  job.coordinator.lost(2, "it died", 2);
  EXPECT_EQ(job.world.created.size(), 2u);
  EXPECT_FALSE(job.coordinator.job().ending);
}

}  // namespace
}  // namespace elinvar
