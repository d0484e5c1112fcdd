// Sessions that compute rank gradients together (tensor parallelism), in threads; the test plays their coordinator and
// their network.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "elastic/protocol/value_pieces.h"
#include "tests/elastic/session_stage.h"

namespace elinvar {
namespace {

using test::compute;
using test::kPlayedShards;
using test::Stage;
using test::value_of;

TEST(SessionReplica, TwoSessionsComputeTogether) {
  Stage stage;
  const std::jthread coordinator([&] { stage.start(); });
  const auto train = [&](size_t which) {
    Session& session = *stage.sessions[which];
    for (int64_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(session.begin());
      EXPECT_EQ(session.step().number, step);
      std::vector<int> vranks;
      while (Session::Task* const task = session.next()) {
        vranks.push_back(task->vrank());
        EXPECT_TRUE(task->counts());
        compute(*task);
      }
      EXPECT_EQ(vranks, (std::vector<int>{0, 1}));
      const Reduced* const reduced = session.reduce();
      ASSERT_TRUE(reduced);
      EXPECT_EQ(reduced->count, 2);
      ASSERT_EQ(reduced->gradients.size(), 4u);
      for (size_t t = 0; t < 4; ++t) {
        const float each = std::vector<float>{1, 2, 3, 4}[t];
        EXPECT_EQ(reduced->gradients[t].span<float>()[0], (each + 2 * each) / 2) << "tensor " << t;
      }
      session.advance({});
    }
  };
  const std::jthread other([&] { train(1); });
  train(0);
}

// A value is longer than a message's blobs may be.
TEST(SessionReplica, LongValuesAreAddedUp) {
  constexpr auto kElements = static_cast<int64_t>(kValuePiece / sizeof(float)) + 3;
  Stage stage;
  const std::jthread coordinator([&] { stage.start(); });
  const auto add_up = [&](size_t which) {
    Session& session = *stage.sessions[which];
    ASSERT_TRUE(session.begin());
    Session::Task* const task = session.next();
    ASSERT_TRUE(task);
    const ShardRange own = task->shards().own(kPlayedShards);
    std::vector<Tensor> values;
    for (int s = own.begin; s < own.end; ++s) {
      values.push_back(Tensor::full({kElements}, s));
      values.back().data<float>()[kElements - 2] = static_cast<float>(10 * s);
    }
    const Tensor sum = task->shards().sum(std::move(values), kPlayedShards);
    EXPECT_EQ(sum.numel(), kElements);
    EXPECT_EQ(sum.span<float>().front(), 3);
    EXPECT_EQ(sum.span<float>()[kElements - 2], 30);
    EXPECT_EQ(sum.span<float>().back(), 3);
  };
  const std::jthread other([&] { add_up(1); });
  add_up(0);
}

// They must not be combined: the members do not compute the same network.
TEST(SessionReplica, ValuesOfAnotherShapeAreReported) {
  Stage stage;
  const std::jthread coordinator([&] {
    stage.start();
    EXPECT_TRUE(stage.heard("suspect", 2));
    stage.tell_all(2, 2, messages::Fence{});
  });
  const auto add_up = [&](size_t which) {
    Session& session = *stage.sessions[which];
    ASSERT_TRUE(session.begin());
    Session::Task* const task = session.next();
    ASSERT_TRUE(task);
    std::vector<Tensor> values;
    for (int s = 0; s < task->shards().own(kPlayedShards).size(); ++s)
      values.push_back(Tensor::full({which == 0 ? 4 : 5}, 1));
    EXPECT_THROW((void)task->shards().sum(std::move(values), kPlayedShards), Session::StepOver);
  };
  const std::jthread other([&] { add_up(1); });
  add_up(0);
}

TEST(SessionReplica, AMemberThatIsGoneEndsTheRankGradientOfTheOther) {
  Stage stage;
  std::promise<void> gone;
  const std::jthread coordinator([&] {
    stage.start();
    gone.get_future().wait();
    stage.go_on_with(/*members=*/1, /*step=*/0);
  });
  const std::jthread other([&] {
    Session& session = *stage.sessions[1];
    ASSERT_TRUE(session.begin());
    Session::Task* const task = session.next();
    ASSERT_TRUE(task);
    std::vector<Tensor> value;
    value.push_back(value_of(0, 2));
    EXPECT_NO_THROW(task->shards().sum(std::move(value), kPlayedShards));
    gone.set_value();  // it sends nothing any more
  });
  Session& session = *stage.sessions[0];
  ASSERT_TRUE(session.begin());
  Session::Task* task = session.next();
  ASSERT_TRUE(task);
  EXPECT_EQ(&task->shards() == &local_shards(), false);
  EXPECT_THROW(compute(*task), Session::StepOver);
  session.give_up();
  EXPECT_FALSE(session.reduce());
  ASSERT_TRUE(session.begin());
  EXPECT_EQ(session.step().number, 0) << "the step begins anew";
  int computed = 0;
  for (; (task = session.next()); ++computed) {
    EXPECT_EQ(&task->shards(), &local_shards()) << "it is alone";
    EXPECT_FALSE(task->begin());
    task->end(Stage::whole(task->vrank()).gradients);
    task->finish(Stage::whole(task->vrank()).facts);
  }
  EXPECT_EQ(computed, 2);
  const Reduced* const reduced = session.reduce();
  ASSERT_TRUE(reduced);
  EXPECT_EQ(reduced->gradients[3].span<float>()[1], 6.0f);
}

// A member may not notice that its generation ended before it computes the next rank gradient. The others of the next
// generation need its digests of all of them.
TEST(SessionReplica, RankGradientsBeginAnewInAnotherGeneration) {
  Stage stage;
  const std::jthread other([&] { EXPECT_TRUE(stage.sessions[1]->begin()); });
  std::jthread coordinator([&] {
    stage.start();
    EXPECT_TRUE(stage.heard("entered", 2));
  });
  Session& session = *stage.sessions[0];
  ASSERT_TRUE(session.begin());
  coordinator.join();
  Session::Task* const task = session.next();
  ASSERT_TRUE(task);
  EXPECT_TRUE(task->begin());
  const RankGradient gradient = Stage::whole(0);
  task->forward(gradient.facts.count, {});
  for (const size_t t : {3, 2, 1}) task->gradient(t, gradient.gradients[t]);
  stage.tell(1, {.generation = 2, .payload = messages::Fence{}});
  EXPECT_TRUE(stage.heard("fenced", 1));
  stage.tell(1, {.generation = 2, .payload = messages::Start{.record = stage.generation(2, 2, 0)}});
  EXPECT_TRUE(stage.heard("entered", 1));
  task->end({});
  task->finish(gradient.facts);
  EXPECT_THROW(session.next(), Session::StepOver);
  session.give_up();
  EXPECT_FALSE(session.reduce());
  ASSERT_TRUE(session.begin());
  Session::Task* const again = session.next();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->vrank(), 0);
}

}  // namespace
}  // namespace elinvar
