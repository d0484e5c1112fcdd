// A coordinator whose job is to hold the state in another form: which newcomers may learn the state meanwhile, and in
// which form.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"
#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using Phase = JobState::Phase;

// Workers 1, 2, .. of generation 1, which have completed step 5 and hold the whole state: two, or as many as the job
// needs.
struct WholeJob {
  explicit WholeJob(int min_workers = 1)
      : coordinator({.endpoint = "here",
                     .steps = 100,
                     .initial_workers = std::max(min_workers, 2),
                     .min_workers = min_workers,
                     .plan = {.vranks = 8}},
                    world, 0, {}, 0) {
    const auto members = static_cast<PeerId>(std::max(min_workers, 2));
    for (PeerId peer = 1; peer <= members; ++peer) hello(peer, 0);
    for (PeerId peer = 1; peer <= members; ++peer) tell(peer, messages::Ready{0}, 0);
    for (PeerId peer = 1; peer <= members; ++peer) tell(peer, messages::Alive{}, 6, 1);
    (void)coordinator.take_actions();
  }
  void tell(PeerId peer, Payload payload, int64_t step, int64_t generation = 0) {
    coordinator.receive({.sender = peer, .generation = generation, .step = step, .payload = std::move(payload)}, 1);
  }
  // A worker that was told to hold the state with this stage of ZeRO. It has warmed up.
  void hello(PeerId peer, int zero) {
    tell(peer, messages::Hello{.about = {.endpoint = "e", .zero = zero, .shards = 20}, .warm = true}, 0);
  }
  void answer(PeerId peer, messages::HeldShards shards, int64_t step = 6) {
    tell(peer,
         messages::Fenced{.promised = coordinator.job().number,
                          .active = peer <= 3,
                          .loaded = true,
                          .keeps = true,
                          .shards = std::move(shards)},
         step, 1);
  }
  template <class T>
  bool sends(PeerId peer) {
    const std::vector<Action> actions = coordinator.take_actions();
    return std::ranges::any_of(
        actions, [&](const Action& action) { return action.peer == peer && action.message.as<T>() != nullptr; });
  }

  test::RecordingWorld world;
  Coordinator coordinator;
};

const messages::HeldShards kWhole{.whole = true, .zero = 0};

TEST(CoordinatorArrangement, NobodyBeginsToLearnAStateOfWhichTheFormChanges) {
  WholeJob job;
  EXPECT_EQ(job.coordinator.arrange({.zero = 1}, 1), "");
  ASSERT_EQ(job.world.created.size(), 2u);
  job.hello(7, 1);
  EXPECT_FALSE(job.sends<messages::SendState>(1)) << "it is planned";
  job.tell(1, messages::Entered{}, 7, 2);
  job.tell(2, messages::Entered{}, 7, 2);
  EXPECT_EQ(job.coordinator.job().current->number, 2);
  EXPECT_FALSE(job.sends<messages::SendState>(1)) << "its first step is under way";
  job.tell(1, messages::Alive{}, 8, 2);
  job.coordinator.tick(1);
  EXPECT_TRUE(job.sends<messages::SendState>(1));
}

TEST(CoordinatorArrangement, WhoCannotTakeTheStateOfTooFewMembersComesBack) {
  WholeJob job(/*min_workers=*/2);
  EXPECT_EQ(job.coordinator.arrange({.zero = 1}, 1), "");
  job.hello(7, 1);
  job.coordinator.lost(2, "it died", 1);
  EXPECT_EQ(job.coordinator.job().zero_of_newcomers(), 1);
  (void)job.coordinator.take_actions();
  job.answer(1, kWhole);
  ASSERT_EQ(job.coordinator.job().phase, Phase::holding);
  EXPECT_TRUE(job.sends<messages::Refused>(7));
  EXPECT_EQ(job.coordinator.job().zero_of_newcomers(), 0);
  job.hello(8, 0);
  EXPECT_TRUE(job.sends<messages::SendState>(1));
  // The job goes on with this worker, in the arrangement that was planned.
  const int64_t attempt = job.coordinator.job().number << 20;
  job.tell(8, messages::Ready{attempt + 1}, 6);
  job.answer(1, kWhole);
  job.answer(8, kWhole);
  ASSERT_EQ(job.coordinator.job().phase, Phase::running);
  const Sharding& sharding = *job.world.created.back().sharding;
  EXPECT_EQ(sharding.zero, 1);
  EXPECT_EQ(sharding.zero_before, 0);
  EXPECT_TRUE(sharding.whole);
  EXPECT_EQ(sharding.holders.ids.size(), 2u);
}

// Otherwise the job would hold for ever: the change needs members, and they need the newcomer.
TEST(CoordinatorArrangement, AChangeThatIsAskedForDelaysNoNewcomerWhileTheJobHolds) {
  WholeJob job(/*min_workers=*/2);
  job.coordinator.lost(2, "it died", 1);
  job.answer(1, kWhole);
  ASSERT_EQ(job.coordinator.job().phase, Phase::holding);
  EXPECT_EQ(job.coordinator.arrange({.zero = 1}, 1), "");
  job.hello(7, 0);
  EXPECT_TRUE(job.sends<messages::SendState>(1));
}

// A fence does not ask a worker that comes while the members answer.
TEST(CoordinatorArrangement, AJobThatHoldsMissesNobodyWhoComesDuringAFence) {
  WholeJob job(/*min_workers=*/3);
  for (const PeerId peer : {2, 3}) job.coordinator.lost(peer, "it died", 1);
  job.answer(1, kWhole);
  for (const PeerId peer : {7, 8}) job.hello(peer, 0);
  const int64_t attempt = (job.coordinator.job().number << 20) + 1;
  job.tell(7, messages::Ready{attempt}, 6);
  ASSERT_EQ(job.coordinator.job().phase, Phase::fencing);
  job.tell(8, messages::Ready{attempt}, 6);
  const int64_t number = job.coordinator.job().number;
  for (const PeerId peer : {1, 7}) job.answer(peer, kWhole);
  EXPECT_EQ(job.coordinator.job().phase, Phase::fencing);
  EXPECT_EQ(job.coordinator.job().number, number + 1);
  for (const PeerId peer : {1, 7, 8}) job.answer(peer, kWhole);
  EXPECT_EQ(job.coordinator.job().phase, Phase::running);
}

// An earlier coordinator made that generation, whose record this one has not read.
TEST(CoordinatorArrangement, AStateThatIsFoundShardedRemainsSharded) {
  WholeJob job;
  job.hello(7, 0);
  job.tell(7, messages::Ready{(int64_t{1} << 20) + 1}, 6);
  job.coordinator.lost(2, "it died", 1);
  job.answer(1, {.generation = 2, .deal = {.ids = {1, 2}, .copies = 2}, .zero = 1});
  job.tell(7, messages::Fenced{.promised = job.coordinator.job().number, .loaded = true}, 6);
  ASSERT_EQ(job.coordinator.job().phase, Phase::running);
  const Generation& g = job.world.created.back();
  ASSERT_TRUE(g.sharding);
  EXPECT_EQ(g.sharding->zero_before, 1);
  EXPECT_EQ(g.sharding->holders, (BucketDeal{.ids = {1, 2}, .copies = 2}));
  EXPECT_EQ(g.ids(), std::vector<int>{1}) << "the learner holds the whole state";
  EXPECT_TRUE(job.sends<messages::Refused>(7));
}

}  // namespace
}  // namespace elinvar
