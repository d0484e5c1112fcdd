// The values of parameters that other members have updated.
#include "elastic/protocol/value_exchange.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/elastic/sharded_member.h"

namespace elinvar {
namespace {

using test::has;
using test::kept_by;
using test::Sent;
using test::ShardedMember;
using test::without;

const BucketDeal kDeal{.ids = {1, 2, 3}, .copies = 2};
const std::vector<int> kAll = {0, 1, 2, 3, 4};

// A member that has just got the trailer of step 4, and has updated what it keeps if `updated`.
struct Values : ShardedMember {
  explicit Values(int index, bool updated = false, const BucketDeal& deal = kDeal)
      : ShardedMember(3, index, {.keepers = deal, .holders = deal}) {
    shards.promise();
    complete();
    if (!updated) return;
    begin();
    values.updated();
  }
  void begin(bool sends = true) { values.begin(4, sends, shards.kept()); }
  void begin_in_group() {
    values.begin(4, /*sends=*/true, shards.kept(), GpuGroup::of(nullptr, /*members=*/3, position.index, Device{}));
  }
  static messages::BucketValues value(int bucket) { return {.bucket = bucket, .slices = {blob_of("four")}}; }
  void receive(const messages::BucketValues& value, int64_t generation, int64_t step) {
    const Message message{.sender = 2, .generation = generation, .step = step, .payload = value};
    values.receive(message, *message.as<messages::BucketValues>());
  }
  void receive(int bucket, int64_t generation = 1, int64_t step = 4) { receive(value(bucket), generation, step); }
  void want(int64_t step, std::vector<int> buckets) {
    values.receive({.sender = 3, .generation = 1, .step = step},
                   messages::WantValues{.buckets = std::move(buckets), .endpoint = "at 3"});
  }
  std::vector<int> lacks() { return without(kAll, shards.kept()); }

  CatchingUp catching_up{position, outbox};
  ValueExchange values{position, layout, catching_up, shards, outbox};
};

TEST(ValueExchange, AnOwnerSendsItsBucketsToThoseWhoLackThem) {
  const auto keepers = keepers_of(kDeal, 5);
  for (int index = 0; index < 3; ++index) {
    Values at(index);
    EXPECT_FALSE(at.values.pending());
    at.begin();
    EXPECT_TRUE(at.values.pending());
    EXPECT_EQ(at.values.kept(), at.shards.kept());
    std::vector<int> owned;
    for (int b = 0; b < 5; ++b)
      if (keepers[static_cast<size_t>(b)][0] == index + 1) owned.push_back(b);
    EXPECT_EQ(at.values.to_send(), owned);
    for (const int b : owned) {
      const std::vector<int>& of = keepers[static_cast<size_t>(b)];
      at.values.send(b, {blob_of("four")});
      EXPECT_EQ(at.sent(), Sent{"value>" + std::to_string(6 - of[0] - of[1])}) << "the only one that does not keep it";
      EXPECT_EQ(at.last.step, 4);
      EXPECT_EQ(at.last.generation, 1);
    }
  }
  Values listener(0);
  listener.begin(/*sends=*/false);
  EXPECT_TRUE(listener.values.to_send().empty());
  Values all(0, true, {.ids = {1, 2, 3}, .copies = 3});
  EXPECT_TRUE(all.values.to_send().empty()) << "every member keeps every bucket";
  EXPECT_TRUE(all.values.complete());
}

// Each member expects the buckets that the others plan to send it, and gets each bucket that it lacks once.
TEST(ValueExchange, ThroughAGroupAllMembersPlanTheSameTransfers) {
  for (const int copies : {1, 2, 3}) {
    std::vector<std::unique_ptr<Values>> members;
    for (int m = 0; m < 3; ++m) {
      members.push_back(std::make_unique<Values>(m, false, BucketDeal{.ids = {1, 2, 3}, .copies = copies}));
      members.back()->begin_in_group();
    }
    for (int m = 0; m < 3; ++m) {
      ValueExchange& values = members[static_cast<size_t>(m)]->values;
      ASSERT_TRUE(values.by_group() && values.transfers());
      EXPECT_TRUE(values.to_send().empty());
      std::vector<int> received;
      for (int other = 0; other < 3; ++other) {
        if (other == m) continue;
        const std::vector<int>& buckets = values.by_group()->receives.at(other);
        EXPECT_EQ(members[static_cast<size_t>(other)]->values.by_group()->sends.at(m), buckets);
        received.insert(received.end(), buckets.begin(), buckets.end());
      }
      std::ranges::sort(received);
      EXPECT_EQ(received, members[static_cast<size_t>(m)]->lacks());
    }
  }
}

TEST(ValueExchange, ThroughAGroupTheyComeAtOnceOrAfterAFenceByMessages) {
  Values at(0);
  at.begin_in_group();
  at.values.updated();
  EXPECT_FALSE(at.values.complete());
  at.values.transferred();
  EXPECT_TRUE(at.values.complete());
  Values fenced(0);
  fenced.begin_in_group();
  fenced.values.updated();
  fenced.position.promised = 2;
  EXPECT_FALSE(fenced.values.transfers());
  fenced.values.fence("at 1");
  EXPECT_EQ(fenced.sent(), (Sent{"want>2", "want>3"}));
}

// With ZeRO-3 an update lacks no values, but may lack sums. A coordinator that is not told waits for ever.
TEST(ValueExchange, LostSumsAreMissedWhetherValuesFollowOrNot) {
  for (const int zero : {2, 3}) {
    ShardedMember at(3, 0, {.zero = zero, .keepers = kDeal, .holders = kDeal});
    const GradientLayout layout{/*bucket_elements=*/1,
                                ShardOptions{.parameters = {{3}, {2}}, .sums = true, .zero = zero}};
    OptimizerShards shards{at.position, layout};
    CatchingUp catching_up{at.position, at.outbox};
    ValueExchange values{at.position, layout, catching_up, shards, at.outbox};
    EXPECT_EQ(values.missing(), "");
    values.begin(4, /*sends=*/true, shards.kept());
    const std::vector<int> lacks = without(kAll, shards.kept());
    const std::string buckets = std::to_string(lacks.size()) + " buckets";
    EXPECT_EQ(values.missing(), "the sums of " + buckets);
    for (const int bucket : lacks) {
      const messages::BucketSums sums{.bucket = bucket, .sums = blob_of("sums")};
      values.receive({.sender = 2, .generation = 1, .step = 4, .payload = sums}, sums);
    }
    EXPECT_EQ(values.missing(), zero < 3 ? "the values of " + buckets : "");
  }
}

TEST(ValueExchange, AnUpdateIsCompleteWithAllValuesAndItsOwnPart) {
  Values at(0);
  at.begin();
  const std::vector<int> lacks = at.lacks();
  ASSERT_GE(lacks.size(), 1u);
  EXPECT_EQ(at.values.missing(), "the values of " + std::to_string(lacks.size()) + " buckets");
  for (const int b : lacks) {
    at.receive(b);
    at.receive(b);
  }
  EXPECT_EQ(at.values.missing(), "");
  EXPECT_EQ(at.values.take_arrived().size(), lacks.size()) << "each once";
  EXPECT_TRUE(at.values.take_arrived().empty());
  EXPECT_FALSE(at.values.complete()) << "its own part is not made";
  at.values.updated();
  EXPECT_TRUE(at.values.complete());
  at.values.end();
  EXPECT_FALSE(at.values.pending());
}

TEST(ValueExchange, ValuesMayComeBeforeTheTrailer) {
  Values at(0);
  const int b = at.lacks()[0];
  at.position.completed = 4;
  at.receive(b);
  at.position.completed = 5;
  at.begin();
  at.values.review();
  ASSERT_EQ(at.values.take_arrived().size(), 1u);
}

TEST(ValueExchange, ValuesOfOlderGenerationsDoNotCountButThoseOfLaterOnesDo) {
  Values at(0);
  const int b = at.lacks()[0];
  at.enter(3, 3, 4, {.keepers = kDeal, .holders = kDeal});
  at.begin();
  at.receive(b, 2);
  EXPECT_TRUE(at.values.take_arrived().empty()) << "the step was repeated since";
  at.receive(b, 4);
  EXPECT_EQ(at.values.take_arrived().size(), 1u) << "the step is made, whatever the next generation is";
  Values other(0, true);
  other.receive(b, 1, 5);
  EXPECT_TRUE(other.values.take_arrived().empty()) << "of a step to come";
}

// The request is of a worker that knew another step of this number, before all restored a checkpoint.
TEST(ValueExchange, WhereParametersAreShardedNobodyGetsValues) {
  for (const bool pending : {true, false}) {
    Values at(1, /*updated=*/true);
    if (!pending) at.values.end(), ++at.position.step;
    at.want(4, {at.shards.kept()[0]});
    at.position.generation->sharding->zero = 3;
    EXPECT_TRUE(at.values.take_wanted().empty());
    at.position.generation->sharding->zero = 1;
    EXPECT_EQ(at.values.take_wanted().size(), 1u);
  }
}

TEST(ValueExchange, RequestsAreAnsweredOnceTheUpdateIsMade) {
  Values at(1);
  at.want(4, {2});
  EXPECT_TRUE(at.values.take_wanted().empty()) << "no trailer yet";
  at.begin();
  EXPECT_TRUE(at.values.take_wanted().empty());
  at.values.updated();
  const std::vector<ValueExchange::Wanted> wanted = at.values.take_wanted();
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted[0].peer, 3u);
  EXPECT_EQ(wanted[0].buckets, std::vector<int>{2});
  EXPECT_TRUE(at.values.take_wanted().empty()) << "once";
  at.sent();
  at.values.give(wanted[0], 2, {blob_of("four")});
  EXPECT_EQ(at.sent(), Sent{"value>3"});
  EXPECT_EQ(at.last.step, 4);
  at.want(5, {2});
  EXPECT_TRUE(at.values.take_wanted().empty()) << "that step is not made";
  at.values.end();
  ++at.position.step;
  at.want(4, {1});
  ASSERT_EQ(at.values.take_wanted().size(), 1u) << "the parameters are still those of step 4";
  ++at.position.completed;
  at.want(4, {1});
  EXPECT_TRUE(at.values.take_wanted().empty()) << "the next update may be under way";
  ++at.position.step;
  EXPECT_EQ(at.values.take_wanted().size(), 1u) << "step 5, asked for above";
  ++at.position.step, ++at.position.completed;
  EXPECT_TRUE(at.values.take_wanted().empty());
}

TEST(ValueExchange, AtAFenceTheKeepersAreAsked) {
  Values at(0, true);
  const std::vector<int> lacks = at.lacks();
  for (size_t i = 1; i < lacks.size(); ++i) at.receive(lacks[i]);
  at.position.promised = 2;
  at.values.fence("at 1");
  EXPECT_EQ(at.sent(), (Sent{"want>2", "want>3"})) << "both keep the bucket that this member does not";
  EXPECT_EQ(at.last.as<messages::WantValues>()->buckets, std::vector<int>{lacks[0]});
  EXPECT_EQ(at.last.as<messages::WantValues>()->endpoint, "at 1");
  EXPECT_EQ(at.last.step, 4);
  at.receive(lacks[0]);
  at.values.fence("at 1");
  EXPECT_EQ(at.sent(), Sent{}) << "nothing is missing";
}

// After the fence those are asked that provide the state, because keepers may be gone.
TEST(ValueExchange, InTheNextGenerationItsProvidersAreAsked) {
  Values at(0, true);
  const std::vector<int> lacks = at.lacks();
  at.position.promised = 2;
  at.enter(2, 2, 5, {.keepers = {.ids = {1, 2}, .copies = 1}, .holders = kDeal});  // the third is gone
  at.values.ask("at 1");
  EXPECT_EQ(at.sent(), Sent{"want>2"});
  EXPECT_EQ(at.last.as<messages::WantValues>()->buckets, lacks);
  Values complete(0);
  complete.values.ask("at 1");
  EXPECT_EQ(complete.sent(), Sent{}) << "no update is under way";
}

// It lacks the result of the step before its generation when another member dies, and gets it then. It may be a keeper
// now of what it was not to keep in that step.
TEST(ValueExchange, BehindASecondFenceAllOthersAreAsked) {
  Values at(0);
  const std::vector<int> kept = at.shards.kept();
  at.position.promised = 2;
  at.enter(2, 3, 5, {.keepers = {.ids = {1, 2}, .copies = 2}, .holders = kDeal});
  at.position.promised = 3;
  at.values.begin(4, /*sends=*/false, kept);
  at.values.ask("at 1");
  EXPECT_EQ(at.sent(), (Sent{"want>2", "want>3"}));
  EXPECT_EQ(at.last.as<messages::WantValues>()->buckets, without(kAll, kept));
}

TEST(ValueExchange, MalformedValuesAreReported) {
  Values at(0, true);
  const int b = at.lacks()[0];
  messages::BucketValues wrong = Values::value(b);
  wrong.slices = {blob_of("too long")};
  at.receive(wrong, 1, 4);
  EXPECT_EQ(at.sent(), Sent{"suspect>99"});
  EXPECT_EQ(at.last.as<messages::Suspect>()->peer, 2u);
  wrong = Values::value(7);
  at.receive(wrong, 1, 4);
  EXPECT_EQ(at.sent(), Sent{"suspect>99"}) << "no such bucket";
  EXPECT_TRUE(at.values.take_arrived().empty());
}

// Copies of an earlier state transfer may be those of a worker that has since been found to be wrong.
TEST(ValueExchange, ALearnerTakesTheCopiesOfItsAttempt) {
  Values at(0);
  at.position.generation.reset();
  at.position.index = -1;
  at.catching_up.learn();
  (void)at.catching_up.take(4, {.part = 0, .parts = 1, .attempt = 3, .last = true});
  at.values.begin(4, /*sends=*/false, {});
  EXPECT_EQ(at.values.missing(), "the values of 5 buckets");
  const auto receive = [&](int bucket, int64_t attempt) {
    messages::BucketValues copy = Values::value(bucket);
    copy.attempt = attempt;
    at.receive(copy, kCopyGeneration, 4);
  };
  receive(0, 2);
  receive(1, 4);
  EXPECT_TRUE(at.values.take_arrived().empty());
  receive(2, 3);
  ASSERT_EQ(at.values.take_arrived().size(), 1u);
}

// With adaptive scaling, what it got as a learner may be of another history than the checkpoint that it has restored.
TEST(ValueExchange, AMemberThatHasRestoredACheckpointTakesNoOldCopies) {
  Values at(0);
  at.catching_up.learn();
  (void)at.catching_up.take(2, {.part = 0, .parts = 1, .attempt = 3, .last = true});
  at.catching_up.restore(4);
  messages::BucketValues copy = Values::value(at.lacks()[0]);
  copy.attempt = 3;
  at.position.completed = 4;
  at.receive(copy, kCopyGeneration, 4);
  at.position.completed = 5;
  at.begin();
  at.values.review();
  at.receive(copy, kCopyGeneration, 4);
  EXPECT_TRUE(at.values.take_arrived().empty());
}

// With adaptive scaling, the same steps may then have other results.
TEST(ValueExchange, AStateThatIsGivenUpAnswersNoRequests) {
  Values at(1, true);
  at.values.end();
  ++at.position.step;
  at.want(4, {1});
  at.position.generation.reset();
  EXPECT_TRUE(at.values.take_wanted().empty());
  at.receive(0, 1, 5);
  at.values.forget();
  at.enter(2, 3, 4, {.keepers = kDeal, .holders = kDeal});
  EXPECT_TRUE(at.values.take_wanted().empty()) << "nor later";
}

}  // namespace
}  // namespace elinvar
