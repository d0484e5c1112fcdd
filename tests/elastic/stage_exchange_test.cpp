#include "elastic/protocol/stage_exchange.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"
#include "tests/elastic/tensor_parts.h"

namespace elinvar {
namespace {

using messages::BoundaryValue;
using messages::GradientDigests;
using messages::Suspect;
using test::MemberParts;
using test::Sent;

bool any_shape(const Shape&, DType) { return true; }

// A member of a replica of three stages: members 0 and 1 compute segment 1, members 2, 3 and 4 segment 2, and member 5
// segments 0 and 3. So the runs are segment 0 (member 5), 1, 2 and 3 (member 5).
struct StageFellow : MemberParts {
  explicit StageFellow(int index) : MemberParts(6, index) {
    std::vector<GenerationMember>& members = position.generation->members;
    members[0].place = {0, {0, 1}, 0, {{1, 2}}, 0.2};
    members[1].place = {0, {1, 3}, 0, {{1, 2}}, 0.2};
    for (int m = 2; m < 5; ++m) members[static_cast<size_t>(m)].place = {0, {m - 2, m - 1}, 1, {{2, 3}}, 0.2};
    members[5].place = {0, {0, 3}, 2, {{0, 1}, {3, 4}}, 0.6};
    position.generation->shards = 3;
    RankGradient gradient;
    for (int t = 0; t < 5; ++t) gradient.gradients.push_back(Tensor::zeros({1}));
    gradient.batch_statistics.push_back(Tensor::zeros({1}));
    layout.learn(gradient);
  }

  static BoundaryValue value(int vrank, int run, bool backward, float value) {
    return {.vrank = vrank,
            .run = run,
            .backward = backward,
            .shape = {1},
            .dtype = DType::f32,
            .random = 7,
            .elements = {blob_of(Tensor::full({1}, value))}};
  }
  void receive(int member, const BoundaryValue& value, int64_t generation = 1, int64_t step = 0) {
    exchange.receive(
        {.sender = static_cast<PeerId>(member + 1), .generation = generation, .step = step, .payload = value}, value);
  }
  static GradientDigests digests(int vrank, size_t count, double loss_sum = 0) {
    return {.vrank = vrank, .digests = blob_of(std::string(count * sizeof(Digest), 'x')), .loss_sum = loss_sum};
  }
  void receive(int member, const GradientDigests& digests, int64_t generation = 1, int64_t step = 0) {
    exchange.receive(
        {.sender = static_cast<PeerId>(member + 1), .generation = generation, .step = step, .payload = digests},
        digests);
  }
  std::string suspected() { return sent() == Sent{"suspect>99"} ? last.as<Suspect>()->reason : ""; }
  static double item(const std::optional<BoundaryValue>& value) {
    return value ? tensor_of(value->elements.at(0)).item() : -1;
  }

  // Tensors of segments and shards; the batch statistic is in segment 2.
  GradientLayout layout{8, {}, TensorParts{.gradients = {{3, -1}, {1, 0}, {1, 2}, {2, -1}, {2, 1}}, .statistics = {2}}};
  ModelReplica replica{position, layout};
  StageExchange exchange{position, replica, outbox};
};

TEST(StageExchange, AValueGoesFromEachMemberOfAStageToThoseThatGetItFromIt) {
  const auto sent_by = [](int member, int run, bool backward) {
    StageFellow at(member);
    at.exchange.begin();
    at.exchange.send(StageFellow::value(4, run, backward, 1));
    return at.sent();
  };
  // Forward from a stage of two to one of three: the third gets it from the first.
  EXPECT_EQ(sent_by(0, 1, false), (Sent{"boundary>3", "boundary>5"}));
  EXPECT_EQ(sent_by(1, 1, false), (Sent{"boundary>4"}));
  EXPECT_EQ(sent_by(2, 2, false), (Sent{"boundary>6"}));
  EXPECT_EQ(sent_by(3, 2, false), Sent{}) << "the only member of the next stage gets it from another one";
  EXPECT_EQ(sent_by(5, 0, false), (Sent{"boundary>1", "boundary>2"}));
  EXPECT_EQ(sent_by(5, 3, true), (Sent{"boundary>3", "boundary>4", "boundary>5"}));
  EXPECT_EQ(sent_by(2, 2, true), (Sent{"boundary>1"}));
  EXPECT_EQ(sent_by(3, 2, true), (Sent{"boundary>2"}));
  EXPECT_EQ(sent_by(4, 2, true), Sent{});
  EXPECT_EQ(sent_by(0, 1, true), (Sent{"boundary>6"}));
}

TEST(StageExchange, AnInputIsTakenOnceItIsThere) {
  StageFellow at(4);
  EXPECT_FALSE(at.exchange.going());
  EXPECT_EQ(at.exchange.missing(), "");
  at.exchange.begin();
  EXPECT_TRUE(at.exchange.going());
  EXPECT_FALSE(at.exchange.take({3, 2, false}, any_shape));
  EXPECT_EQ(at.exchange.missing(), "a value of virtual rank 3 from worker 1");
  at.receive(0, StageFellow::value(3, 1, false, 5));
  const auto value = at.exchange.take({3, 2, false}, any_shape);
  EXPECT_EQ(StageFellow::item(value), 5);
  EXPECT_EQ(value->random, 7);
  EXPECT_EQ(at.exchange.missing(), "");
  EXPECT_FALSE(at.exchange.take({3, 2, false}, any_shape)) << "each is taken once";
  EXPECT_FALSE(at.exchange.take({3, 2, true}, any_shape));
  EXPECT_EQ(at.exchange.missing(), "a gradient of virtual rank 3 from worker 6");
  at.exchange.end();
  EXPECT_FALSE(at.exchange.going());
  EXPECT_EQ(at.exchange.missing(), "");
}

TEST(StageExchange, EarlyInputsWaitForTheirPasses) {
  StageFellow at(2);
  at.receive(5, StageFellow::value(4, 3, true, 1));
  at.receive(0, StageFellow::value(5, 1, false, 2));
  at.receive(0, StageFellow::value(4, 1, false, 3));
  at.receive(5, StageFellow::value(4, 3, true, 9), /*generation=*/1, /*step=*/1);
  at.receive(5, StageFellow::value(4, 3, true, 8), /*generation=*/2, /*step=*/0);
  at.exchange.begin();
  EXPECT_EQ(StageFellow::item(at.exchange.take({4, 2, false}, any_shape)), 3);
  EXPECT_EQ(StageFellow::item(at.exchange.take({5, 2, false}, any_shape)), 2);
  EXPECT_EQ(StageFellow::item(at.exchange.take({4, 2, true}, any_shape)), 1);
  at.position.completed = at.position.step = 1;
  at.exchange.prune();
  at.exchange.begin();
  EXPECT_EQ(StageFellow::item(at.exchange.take({4, 2, true}, any_shape)), 9) << "of the next step";
}

TEST(StageExchange, AnInputOfAnotherMemberIsNotTaken) {
  StageFellow at(2);
  at.exchange.begin();
  at.receive(1, StageFellow::value(4, 1, false, 1));  // of the same stage as the right one, for another member
  at.receive(3, StageFellow::value(4, 1, false, 1));  // of this stage
  at.receive(8, StageFellow::value(4, 1, false, 1));  // of none
  EXPECT_FALSE(at.exchange.take({4, 2, false}, any_shape));
  at.receive(0, StageFellow::value(4, 1, true, 1));   // of another direction
  at.receive(0, StageFellow::value(4, 0, false, 1));  // of another run
  EXPECT_FALSE(at.exchange.take({4, 2, false}, any_shape));
  at.receive(0, StageFellow::value(4, 1, false, 2));
  EXPECT_EQ(StageFellow::item(at.exchange.take({4, 2, false}, any_shape)), 2);
  EXPECT_EQ(at.sent(), Sent{});
}

TEST(StageExchange, AFenceEndsIt) {
  StageFellow at(2);
  at.exchange.begin();
  EXPECT_FALSE(at.exchange.take({4, 2, false}, any_shape));
  at.position.promised = 2;
  EXPECT_FALSE(at.exchange.going());
  EXPECT_EQ(at.exchange.missing(), "") << "it waits for the coordinator";
  at.receive(0, StageFellow::value(4, 1, false, 1), /*generation=*/1);
  at.receive(0, StageFellow::value(4, 1, false, 2), /*generation=*/2);
  at.position.generation->number = 2;
  EXPECT_FALSE(at.exchange.going()) << "nor does it go on in the next generation";
  at.exchange.begin();
  EXPECT_EQ(at.exchange.missing(), "");
  EXPECT_EQ(StageFellow::item(at.exchange.take({4, 2, false}, any_shape)), 2);
}

TEST(StageExchange, WhatNoLongerCountsIsNotKept) {
  const auto kept = [](auto&& change, int64_t generation, int64_t step) {
    StageFellow at(2);
    at.receive(0, StageFellow::value(4, 1, false, 1), generation, step);
    for (const int m : {0, 1, 3, 4, 5}) at.receive(m, StageFellow::digests(4, 0), generation, step);
    const MemberPosition before = at.position;
    change(at.position);
    at.exchange.prune();
    at.position = before;  // as if it had not changed
    at.position.generation->number = at.position.promised = generation;
    at.position.completed = step;
    at.exchange.begin();
    const bool value = at.exchange.take({4, 2, false}, any_shape).has_value();
    EXPECT_EQ(at.exchange.take_digests(4, /*samples=*/false).has_value(), value);
    return value;
  };
  EXPECT_TRUE(kept([](MemberPosition&) {}, 2, 1));
  EXPECT_FALSE(kept([](MemberPosition& p) { p.promised = 3; }, 2, 1));
  EXPECT_FALSE(kept([](MemberPosition& p) { p.generation->number = 3; }, 2, 1));
  EXPECT_FALSE(kept([](MemberPosition& p) { p.completed = 2; }, 2, 1));
  EXPECT_TRUE(kept([](MemberPosition& p) { p.completed = 2, p.loaded = false; }, 2, 1))
      << "another state may be of an earlier step";
  StageFellow at(2);
  at.position.completed = 5;
  at.receive(0, StageFellow::value(4, 1, false, 1), 1, /*step=*/4);
  at.position.completed = 4;
  at.exchange.begin();
  EXPECT_FALSE(at.exchange.take({4, 2, false}, any_shape)) << "it came too late";
}

TEST(StageExchange, MalformedValuesAreReported) {
  StageFellow at(2);
  at.exchange.begin();
  BoundaryValue wrong = StageFellow::value(4, 1, false, 1);
  wrong.shape = {2};
  at.receive(0, wrong);
  EXPECT_EQ(at.suspected(), "sent a malformed boundary: a value has another size");
  EXPECT_EQ(at.last.as<Suspect>()->peer, 1u);
  wrong = StageFellow::value(4, 1, false, 1);
  wrong.elements.clear();
  at.receive(0, wrong);
  EXPECT_EQ(at.suspected(), "sent a malformed boundary: a value has another size");
  EXPECT_FALSE(at.exchange.take({4, 2, false}, any_shape)) << "none of them is kept";
  at.receive(0, StageFellow::value(4, 1, false, 1));
  const auto fits = [](const Shape& shape, DType dtype) { return shape == Shape{3} && dtype == DType::f32; };
  EXPECT_FALSE(at.exchange.take({4, 2, false}, fits));
  EXPECT_EQ(at.suspected(), "sent a value of another shape or type than was expected");
  EXPECT_FALSE(at.exchange.take({4, 2, false}, fits));
  EXPECT_EQ(at.sent(), Sent{}) << "once";
}

// Members 0 to 5 have 1, 1, 2, 3, 2 and 1 of the tensors and batch statistics.
TEST(StageExchange, DigestsOfAllOthersAreTaken) {
  StageFellow at(2);
  at.exchange.begin();
  at.exchange.send(StageFellow::digests(4, 2));
  EXPECT_EQ(at.sent(), (Sent{"digests>1", "digests>2", "digests>4", "digests>5", "digests>6"}));
  at.receive(0, StageFellow::digests(4, 1));
  at.receive(1, StageFellow::digests(4, 1));
  at.receive(3, StageFellow::digests(4, 3));
  at.receive(4, StageFellow::digests(4, 2));
  EXPECT_FALSE(at.exchange.take_digests(4, true));
  EXPECT_EQ(at.exchange.missing(), "digests of virtual rank 4 from other members");
  at.receive(5, StageFellow::digests(4, 1, /*loss_sum=*/2.5));
  const auto others = at.exchange.take_digests(4, true);
  ASSERT_TRUE(others);
  EXPECT_EQ(others->size(), 5u);
  EXPECT_EQ(others->at(5).loss_sum, 2.5);
  EXPECT_EQ(at.exchange.missing(), "");
  EXPECT_FALSE(at.exchange.take_digests(4, true)) << "they are taken once";
}

TEST(StageExchange, DigestsOfOtherTensorsAreReported) {
  for (const bool samples : {true, false}) {
    StageFellow at(2);
    at.exchange.begin();
    for (const int m : {0, 1, 3, 4})
      at.receive(m, StageFellow::digests(4, samples ? (m == 3 ? 3 : m == 4 ? 2 : 1) : 0));
    at.receive(5, StageFellow::digests(4, 2));
    EXPECT_FALSE(at.exchange.take_digests(4, samples));
    EXPECT_EQ(at.suspected(), "sent the digests of other tensors than its own");
    EXPECT_EQ(at.last.as<Suspect>()->peer, 6u);
    EXPECT_FALSE(at.exchange.take_digests(4, samples));
    EXPECT_EQ(at.sent(), Sent{}) << "once";
    at.receive(5, StageFellow::digests(4, samples ? 1 : 0));
    EXPECT_TRUE(at.exchange.take_digests(4, samples));
  }
}

}  // namespace
}  // namespace elinvar
