#include "elastic/protocol/replica_exchange.h"

#include <gtest/gtest.h>

#include "elastic/protocol/value_pieces.h"
#include "tests/elastic/replica_parts.h"

namespace elinvar {
namespace {

using messages::ShardValues;
using test::MemberParts;
using test::Sent;

bool any(int, const messages::ShardValue&) { return true; }

// A member of a replica of three, which have a virtual shard each.
struct Fellow : MemberParts {
  explicit Fellow(int index = 0) : MemberParts(3, index) { test::form_replicas(*position.generation, 3, 3, 6); }

  static ShardValues values(int shard, float value) {
    ShardValues values;
    values.values.push_back({shard, shard + 1, {1}, DType::f32});
    values.elements.push_back(blob_of(Tensor::full({1}, value)));
    return values;
  }
  void receive(int member, ShardValues values, int vrank, int64_t number, int64_t generation = 1, int64_t step = 0) {
    values.vrank = vrank;
    values.number = number;
    exchange.receive(
        {.sender = static_cast<PeerId>(member + 1), .generation = generation, .step = step, .payload = values}, values);
  }
  void receive_both(int vrank, int64_t number, int64_t generation = 1, int64_t step = 0) {
    for (const int m : {1, 2})
      receive(m, values(m, static_cast<float>(10 * m + number)), vrank, number, generation, step);
  }
  static double item(const ShardValues& values) { return tensor_of(values.elements.at(0)).item(); }

  GradientLayout layout{3, {}, test::parts_of_shards({0, 1, 2})};
  ModelReplica replica{position, layout};
  ReplicaExchange exchange{position, replica, outbox};
};

TEST(ReplicaExchange, ValuesOfAllOthersAreTakenInOrder) {
  Fellow at;
  EXPECT_FALSE(at.exchange.going());
  at.exchange.begin(4);
  EXPECT_TRUE(at.exchange.going());
  EXPECT_EQ(at.exchange.missing(), "") << "it waits for nothing before it has sent its own";
  at.exchange.send(Fellow::values(0, 1));
  EXPECT_EQ(at.sent(), (Sent{"within>2", "within>3"}));
  EXPECT_EQ(at.last.as<ShardValues>()->vrank, 4);
  EXPECT_EQ(at.last.as<ShardValues>()->number, 0);
  EXPECT_EQ(at.exchange.missing(), "values of virtual rank 4 from worker 2 and 3");
  EXPECT_FALSE(at.exchange.take(any));
  at.receive(2, Fellow::values(2, 7), 4, 0);
  EXPECT_EQ(at.exchange.missing(), "values of virtual rank 4 from worker 2");
  EXPECT_FALSE(at.exchange.take(any));
  at.receive(1, Fellow::values(1, 6), 4, 0);
  EXPECT_EQ(at.exchange.missing(), "");
  const auto others = at.exchange.take(any);
  ASSERT_TRUE(others);
  ASSERT_EQ(others->size(), 2u);
  EXPECT_EQ(Fellow::item(others->at(1)), 6);
  EXPECT_EQ(Fellow::item(others->at(2)), 7);
  at.exchange.send(Fellow::values(0, 2));
  at.sent();
  EXPECT_EQ(at.last.as<ShardValues>()->number, 1);
  EXPECT_FALSE(at.exchange.take(any)) << "each is taken once";
  at.exchange.end();
  EXPECT_FALSE(at.exchange.going());
  EXPECT_EQ(at.exchange.missing(), "");
}

// The others may be ahead by a message, and in another rank gradient of the step.
TEST(ReplicaExchange, EarlyValuesWaitForTheirTurn) {
  Fellow at;
  at.receive_both(/*vrank=*/5, 0);
  at.receive_both(/*vrank=*/4, 1);
  at.receive_both(/*vrank=*/4, 0);
  for (const int vrank : {4, 5}) {
    at.exchange.begin(vrank);
    for (int number = 0; number < 6 - vrank; ++number) {
      at.exchange.send(Fellow::values(0, 0));
      const auto others = at.exchange.take(any);
      ASSERT_TRUE(others) << vrank << " " << number;
      EXPECT_EQ(Fellow::item(others->at(2)), 20 + number);
    }
    at.exchange.end();
  }
}

TEST(ReplicaExchange, AFenceEndsIt) {
  Fellow at;
  at.exchange.begin(4);
  at.exchange.send(Fellow::values(0, 1));
  at.position.promised = 2;
  EXPECT_FALSE(at.exchange.going());
  EXPECT_EQ(at.exchange.missing(), "") << "it waits for the coordinator";
  at.position.generation->number = 2;
  EXPECT_FALSE(at.exchange.going()) << "nor does it go on in the next generation";
  at.receive_both(4, 0, /*generation=*/1);
  at.exchange.begin(4);
  EXPECT_TRUE(at.exchange.going());
  at.exchange.send(Fellow::values(0, 1));
  EXPECT_FALSE(at.exchange.take(any)) << "values of the former generation do not count";
  at.receive_both(4, 0, /*generation=*/2);
  EXPECT_TRUE(at.exchange.take(any));
}

TEST(ReplicaExchange, ValuesMayComeBeforeTheGenerationBeginsHere) {
  Fellow at;
  at.receive_both(4, 0, /*generation=*/3);
  at.position.promised = at.position.generation->number = 3;
  at.exchange.prune();
  at.exchange.begin(4);
  at.exchange.send(Fellow::values(0, 1));
  EXPECT_TRUE(at.exchange.take(any));
}

TEST(ReplicaExchange, WhatNoLongerCountsIsNotKept) {
  const auto kept = [](auto&& change, int64_t generation, int64_t step) {
    Fellow at;
    at.receive_both(4, 0, generation, step);
    const MemberPosition before = at.position;
    change(at.position);
    at.exchange.prune();
    at.position = before;  // as if it had not changed
    at.position.generation->number = at.position.promised = generation;
    at.position.completed = step;
    at.exchange.begin(4);
    at.exchange.send(Fellow::values(0, 1));
    return at.exchange.take(any).has_value();
  };
  EXPECT_TRUE(kept([](MemberPosition&) {}, 2, 1));
  EXPECT_FALSE(kept([](MemberPosition& p) { p.promised = 3; }, 2, 1));
  EXPECT_FALSE(kept([](MemberPosition& p) { p.generation->number = 3; }, 2, 1));
  EXPECT_FALSE(kept([](MemberPosition& p) { p.completed = 2; }, 2, 1));
  EXPECT_TRUE(kept([](MemberPosition& p) { p.completed = 2, p.loaded = false; }, 2, 1))
      << "another state may be of an earlier step";
  Fellow at;
  at.position.completed = 5;
  at.receive_both(4, 0, 1, /*step=*/4);
  at.position.completed = 4;
  at.exchange.begin(4);
  at.exchange.send(Fellow::values(0, 1));
  EXPECT_FALSE(at.exchange.take(any)) << "it came too late";
}

TEST(ReplicaExchange, MalformedValuesAreReported) {
  Fellow at;
  ShardValues wrong = Fellow::values(1, 1);
  wrong.elements.clear();
  at.receive(1, wrong, 4, 0);
  EXPECT_EQ(at.sent(), Sent{"suspect>99"});
  EXPECT_EQ(at.last.as<messages::Suspect>()->peer, 2u);
  EXPECT_EQ(at.last.as<messages::Suspect>()->reason, "sent a malformed within: values are missing");
  wrong = Fellow::values(1, 1);
  wrong.values[0].shape = {2};
  at.receive(1, wrong, 4, 0);
  EXPECT_EQ(at.sent(), Sent{"suspect>99"});
  EXPECT_EQ(at.last.as<messages::Suspect>()->reason, "sent a malformed within: a value has another size");
  at.receive(2, Fellow::values(2, 1), 4, 0);
  at.exchange.begin(4);
  at.exchange.send(Fellow::values(0, 1));
  at.sent();
  EXPECT_FALSE(at.exchange.take(any)) << "none of them is kept";
}

TEST(ReplicaExchange, ValuesThatDoNotFitAreReported) {
  Fellow at;
  at.exchange.begin(4);
  at.exchange.send(Fellow::values(0, 1));
  at.receive_both(4, 0);
  at.sent();
  const auto fits = [](int member, const messages::ShardValue& value) {
    return value.shape == Shape{1} && member != 2;
  };
  EXPECT_FALSE(at.exchange.take(fits));
  EXPECT_EQ(at.sent(), Sent{"suspect>99"});
  EXPECT_EQ(at.last.as<messages::Suspect>()->peer, 3u);
  EXPECT_EQ(at.last.as<messages::Suspect>()->reason, "sent values of another shape or type than was expected");
  EXPECT_FALSE(at.exchange.take(fits));
  EXPECT_EQ(at.sent(), Sent{}) << "once";
}

TEST(ReplicaExchange, LongValuesComeInPieces) {
  constexpr auto kElements = static_cast<int64_t>(kValuePiece / sizeof(float)) + 1;
  const std::vector<char> bytes(kValuePiece);
  const auto piece = [&](size_t size) {
    return Blob{.owner = nullptr, .data = reinterpret_cast<const std::byte*>(bytes.data()), .bytes = size};
  };
  for (const auto& [sizes, whole] : {std::pair{std::vector{kValuePiece, size_t{4}}, true},
                                     {{kValuePiece}, false},
                                     {{4, kValuePiece}, false},
                                     {{kValuePiece, 4, 4}, false}}) {
    Fellow at;
    ShardValues values;
    values.values.push_back({1, 2, {kElements}, DType::f32});
    for (const size_t size : sizes) values.elements.push_back(piece(size));
    at.receive(1, values, 4, 0);
    EXPECT_EQ(at.sent(), whole ? Sent{} : Sent{"suspect>99"});
  }
}

// They would be combined with those of the member that has these shards.
TEST(ReplicaExchange, ValuesOfOtherShardsThanTheSendersAreReported) {
  for (const int shard : {0, 2, 3, -1}) {
    Fellow at;
    at.exchange.begin(4);
    at.exchange.send(Fellow::values(0, 1));
    at.receive(1, Fellow::values(shard, 1), 4, 0);
    at.receive(2, Fellow::values(2, 1), 4, 0);
    at.sent();
    EXPECT_FALSE(at.exchange.take(any));
    EXPECT_EQ(at.sent(), Sent{"suspect>99"});
    EXPECT_EQ(at.last.as<messages::Suspect>()->peer, 2u);
    EXPECT_FALSE(at.exchange.take(any));
    EXPECT_EQ(at.sent(), Sent{}) << "once";
    EXPECT_NE(at.exchange.missing(), "");
  }
}

}  // namespace
}  // namespace elinvar
