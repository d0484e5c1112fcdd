#include "elastic/protocol/stage_exchange.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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

TEST(StageExchange, TransfersAreBetweenThoseWhoSendMessagesOtherwise) {
  const auto of = [](int member) {
    std::vector<std::string> all;
    for (const auto& [pass, to, from] : StageFellow(member).exchange.transfers({4}))
      all.push_back(fmt::format("{}{}{}{}", pass.backward ? "b" : "f", pass.run,
                                from >= 0 ? fmt::format("<{}", from) : ">", fmt::join(to, ",")));
    return all;
  };
  using All = std::vector<std::string>;
  EXPECT_EQ(of(0), (All{"f0<5", "f1>2,4", "b2<2", "b1>5"}));
  EXPECT_EQ(of(1), (All{"f0<5", "f1>3", "b2<3"}));
  EXPECT_EQ(of(2), (All{"f1<0", "f2>5", "b3<5", "b2>0"}));
  EXPECT_EQ(of(4), (All{"f1<0", "b3<5"})) << "nobody gets its value or its gradient from it";
  EXPECT_EQ(of(5), (All{"f0>0,1", "f2<2", "b3>2,3,4", "b1<0"}));
}

// A member makes a transfer when all that take part are at it.
TEST(StageExchange, NoMembersWaitForEachOthersTransfers) {
  for (size_t count : {1, 2, 3, 5, 9}) {
    std::vector<int> vranks(count);
    std::iota(vranks.begin(), vranks.end(), 0);
    using Transfer = StageExchange::Transfer;
    std::vector<std::vector<Transfer>> transfers;
    std::vector<std::vector<PipelinePass>> passes;
    for (int member = 0; member < 6; ++member) {
      const StageFellow at(member);
      transfers.push_back(at.exchange.transfers(vranks));
      passes.push_back(at.replica.passes(vranks));
    }
    std::vector<size_t> begun(6, 0), made(6, 0);  // passes, of which each but the last is computed; transfers
    // Returns the transfer that a member is at, if it is at one.
    const auto at = [&](size_t member) -> const Transfer* {
      const auto until = [&](const PipelinePass& given) {
        const auto& all = transfers[member];
        const auto found = std::ranges::find(all, given, &Transfer::pass);
        return found == all.end() ? size_t{0} : static_cast<size_t>(found - all.begin()) + 1;
      };
      while (true) {
        size_t end = begun[member] > 0 ? until(passes[member][begun[member] - 1]) : 0;
        if (begun[member] < passes[member].size()) {
          const auto& [vrank, run, backward] = passes[member][begun[member]];
          end = std::max(end, until({vrank, backward ? run + 1 : run - 1, backward}));
        }
        if (made[member] < end) return &transfers[member][made[member]];
        if (begun[member] == passes[member].size()) return nullptr;
        ++begun[member];
      }
    };
    for (bool any = true; any;) {
      any = false;
      for (size_t sender = 0; sender < 6; ++sender) {
        const Transfer* const given = at(sender);
        if (given == nullptr || given->from >= 0) continue;
        const bool all = std::ranges::all_of(given->to, [&](int to) {
          const Transfer* const taken = at(static_cast<size_t>(to));
          return taken != nullptr && taken->pass == given->pass && taken->from == static_cast<int>(sender);
        });
        if (!all) continue;
        any = true;
        ++made[sender];
        for (const int to : given->to) ++made[static_cast<size_t>(to)];
      }
    }
    for (size_t member = 0; member < 6; ++member) {
      EXPECT_EQ(made[member], transfers[member].size()) << member;
      EXPECT_EQ(begun[member], passes[member].size()) << member;
    }
  }
}

TEST(StageExchange, InAGroupMessagesAnnounceValuesWithoutElements) {
  const auto announced = [](const Shape& shape) {
    return BoundaryValue{
        .vrank = 4, .run = 1, .backward = false, .shape = shape, .random = 7, .in_group = true, .elements = {}};
  };
  StageFellow at(2);
  at.exchange.begin(/*in_group=*/true);
  at.receive(0, announced({3}));
  const auto value = at.exchange.take({4, 2, false}, any_shape);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->shape, Shape({3}));
  EXPECT_EQ(value->random, 7);
  BoundaryValue given = announced({2});
  given.run = 2;
  given.in_group = false;
  at.exchange.send(given);
  EXPECT_EQ(at.sent(), Sent{"boundary>6"});
  EXPECT_TRUE(at.last.as<BoundaryValue>()->in_group);
}

// All members know alike how a step is made.
TEST(StageExchange, ValuesDoNotComeInTheOtherWay) {
  const char* const kOther = "sent a value of another shape or type than was expected";
  StageFellow in_group(2), by_messages(2);
  in_group.exchange.begin(/*in_group=*/true);
  in_group.receive(0, StageFellow::value(4, 1, false, 1));
  EXPECT_FALSE(in_group.exchange.take({4, 2, false}, any_shape));
  EXPECT_EQ(in_group.suspected(), kOther);
  by_messages.exchange.begin();
  BoundaryValue value = StageFellow::value(4, 1, false, 1);
  value.in_group = true;
  by_messages.receive(0, value);
  EXPECT_EQ(by_messages.suspected(), "sent a malformed boundary: a value has another size");
  value.elements.clear();
  by_messages.receive(0, value);
  EXPECT_FALSE(by_messages.exchange.take({4, 2, false}, any_shape));
  EXPECT_EQ(by_messages.suspected(), kOther);
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
