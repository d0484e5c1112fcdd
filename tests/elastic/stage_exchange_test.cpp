#include "elastic/protocol/stage_exchange.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
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
  using Places = std::vector<ReplicaPlace>;
  static Places three_stages() {
    Places places{{0, {0, 1}, 0, {{1, 2}}, 0.2}, {0, {1, 3}, 0, {{1, 2}}, 0.2}};
    for (int shard = 0; shard < 3; ++shard) places.push_back({0, {shard, shard + 1}, 1, {{2, 3}}, 0.2});
    places.push_back({0, {0, 3}, 2, {{0, 1}, {3, 4}}, 0.6});
    return places;
  }
  // A stage of two members, and one of one with the first and the last segment.
  static Places tied_pair() {
    return {{0, {0, 1}, 0, {{1, 2}}, 0.5}, {0, {1, 3}, 0, {{1, 2}}, 0.5}, {0, {0, 3}, 1, {{0, 1}, {2, 3}}, 1.0}};
  }
  explicit StageFellow(int index, const Places& places = three_stages())
      : MemberParts(static_cast<int>(places.size()), index) {
    for (size_t m = 0; m < places.size(); ++m) position.generation->members[m].place = places[m];
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
                                from >= 0 ? fmt::format("<{}", from) : (to.empty() ? "" : ">"), fmt::join(to, ",")));
    return all;
  };
  using All = std::vector<std::string>;
  EXPECT_EQ(of(0), (All{"f0<5", "f1>2,4", "f2", "b3", "b2<2", "b1>5"}));
  EXPECT_EQ(of(1), (All{"f0<5", "f1>3", "f2", "b3", "b2<3", "b1"}));
  EXPECT_EQ(of(2), (All{"f0", "f1<0", "f2>5", "b3<5", "b2>0", "b1"}));
  EXPECT_EQ(of(4), (All{"f0", "f1<0", "f2", "b3<5", "b2", "b1"})) << "nobody gets its value or its gradient from it";
  EXPECT_EQ(of(5), (All{"f0>0,1", "f1", "f2<2", "b3>2,3,4", "b2", "b1<0"}));
}

// Members whose values go through a group, and who compute passes together with the others of their stage.
class StageFellows {
 public:
  StageFellows(const std::vector<StageFellow*>& fellows, const std::vector<int>& vranks) {
    for (StageFellow* const at : fellows) {
      transfers_.push_back(at->exchange.transfers(vranks));
      passes_.push_back(at->replica.passes(vranks));
    }
    stages_ = fellows[0]->replica.stages();
    begun_.resize(fellows.size());
    made_.resize(fellows.size());
    while (go_on()) {
    }
  }
  bool done(size_t member) const {
    return made_[member] == transfers_[member].size() && begun_[member] == passes_[member].size();
  }

 private:
  using Transfer = StageExchange::Transfer;

  size_t until(size_t member, const PipelinePass& given) const {
    const auto& all = transfers_[member];
    const auto found = std::ranges::find(all, given, &Transfer::pass);
    return found == all.end() ? size_t{0} : static_cast<size_t>(found - all.begin()) + 1;
  }
  // Returns the transfer that a member is at, or null if it is at its next pass.
  const Transfer* at(size_t member) {
    size_t end = begun_[member] > 0 ? until(member, passes_[member][begun_[member] - 1]) : 0;
    if (begun_[member] < passes_[member].size()) {
      const auto& [vrank, run, backward] = passes_[member][begun_[member]];
      end = std::max(end, until(member, {vrank, backward ? run + 1 : run - 1, backward}));
    } else {
      end = transfers_[member].size();
    }
    for (; made_[member] < end; ++made_[member])
      if (const Transfer& next = transfers_[member][made_[member]]; next.from >= 0 || !next.to.empty()) return &next;
    return nullptr;
  }
  // Makes each transfer all of whose members are at it, and computes each pass at which all members of its stage are.
  bool go_on() {
    bool any = false;
    for (size_t sender = 0; sender < begun_.size(); ++sender) {
      const Transfer* const given = at(sender);
      if (given == nullptr || given->from >= 0) continue;
      const bool all = std::ranges::all_of(given->to, [&](int to) {
        const Transfer* const taken = at(static_cast<size_t>(to));
        return taken != nullptr && taken->pass == given->pass && taken->from == static_cast<int>(sender);
      });
      if (!all) continue;
      any = true;
      for (const int to : given->to) ++made_[static_cast<size_t>(to)];
      ++made_[sender];
    }
    for (const std::vector<int>& stage : stages_) {
      const size_t next = begun_[static_cast<size_t>(stage[0])];
      if (next == passes_[static_cast<size_t>(stage[0])].size()) continue;
      const bool all = std::ranges::all_of(stage, [&](int m) {
        return begun_[static_cast<size_t>(m)] == next && at(static_cast<size_t>(m)) == nullptr;
      });
      if (!all) continue;
      any = true;
      for (const int m : stage) ++begun_[static_cast<size_t>(m)];
    }
    return any;
  }

  std::vector<std::vector<Transfer>> transfers_;
  std::vector<std::vector<PipelinePass>> passes_;
  std::vector<std::vector<int>> stages_;
  std::vector<size_t> begun_, made_;  // passes, and transfers
};

TEST(StageExchange, NoMembersWaitForEachOthersTransfers) {
  for (const bool tied_pair : {false, true})
    for (const size_t count : {1, 2, 3, 5, 9}) {
      std::vector<int> vranks(count);
      std::iota(vranks.begin(), vranks.end(), 0);
      std::vector<std::unique_ptr<StageFellow>> members;
      std::vector<StageFellow*> fellows;
      for (int member = 0; member < (tied_pair ? 3 : 6); ++member) {
        members.push_back(tied_pair ? std::make_unique<StageFellow>(member, StageFellow::tied_pair())
                                    : std::make_unique<StageFellow>(member));
        fellows.push_back(members.back().get());
      }
      const StageFellows made(fellows, vranks);
      for (size_t member = 0; member < members.size(); ++member)
        EXPECT_TRUE(made.done(member)) << "member " << member << ", " << count << " virtual ranks";
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
