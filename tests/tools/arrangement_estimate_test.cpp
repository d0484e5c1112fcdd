#include "tools/training/arrangement_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tools/training/pass_memory.h"

namespace elinvar {
namespace {

constexpr double kParameters = 64 << 20;  // bytes of parameters

// Equal segments of a second a rank gradient each, a third of it in the forward pass, without a tie between them. Each
// has a parameter that is cut into the virtual shards, and what is divided among them is a half of all.
NetworkNeeds network_of(int segments, int shards = 1) {
  NetworkNeeds needs;
  needs.shards = shards;
  TensorParts parts;
  for (int i = 0; i < segments; ++i) {
    const Divided third{.common = 0.5 / 3, .shards = 0.5 / 3};
    needs.segments.push_back({.forward = third,
                              .backward = {.common = 1.0 / 3, .shards = 1.0 / 3},
                              .held = {.common = 1e6, .shards = 3e6},
                              .more = {},
                              .forward_sums = {},
                              .backward_sums = {}});
    needs.homes.push_back(i);
    for (int s = 0; s < shards; ++s) {
      needs.memory.parameters.push_back({static_cast<int64_t>(kParameters) / 4 / segments / shards});
      parts.gradients.push_back({.segment = i, .shard = shards > 1 ? s : -1});
      needs.first_readers.push_back(i);
    }
  }
  needs.memory.parts = parts;
  needs.memory.slots = 2;
  needs.memory.checkpoints = false;
  return needs;
}

Cluster free_links(int workers) { return {.workers = workers, .latency = 0, .bandwidth = 1e30}; }

ArrangementEstimate one_of(const std::vector<ArrangementEstimate>& estimates, const Arrangement& arrangement) {
  const auto found = std::ranges::find(estimates, arrangement, &ArrangementEstimate::arrangement);
  EXPECT_NE(found, estimates.end());
  return found == estimates.end() ? ArrangementEstimate{} : *found;
}

TEST(ArrangementEstimate, AWorkerAloneComputesAll) {
  const auto estimates = estimate_arrangements(network_of(4), 8, free_links(1));
  ASSERT_EQ(estimates.size(), 1u);
  EXPECT_EQ(estimates[0].text(), "dp=1");
  EXPECT_NEAR(estimates[0].time.all(), 4 * 8, 1e-9);
  EXPECT_TRUE(estimates[0].fits);
}

TEST(ArrangementEstimate, ABalancedPipelineHasABubble) {
  for (const int m : {1, 4, 16}) {
    const ArrangementEstimate pipeline = one_of(estimate_arrangements(network_of(4), m, free_links(4)), {.pp = 4});
    EXPECT_EQ(pipeline.dp, 1);
    EXPECT_NEAR(pipeline.time.computing, m, 1e-9);
    EXPECT_NEAR(pipeline.time.all(), m + 3, 1e-9) << m << " rank gradients: (m + p - 1) / m of the time";
  }
}

TEST(ArrangementEstimate, TensorParallelismDividesWhatIsCut) {
  const auto estimates = estimate_arrangements(network_of(4, 8), 8, free_links(4));
  EXPECT_NEAR(one_of(estimates, {.tp = 4}).time.all(), 8 * 4 * (0.5 + 0.5 / 4), 1e-9);
  const auto bytes = [](int shards) { return pass_bytes(network_of(4, 8), {}, {.shards = {0, shards}}, 1, 0).at(0); };
  EXPECT_EQ(bytes(8), static_cast<int64_t>(4e6 + kParameters)) << "in the first segment's backward pass, the last one";
  EXPECT_EQ(bytes(2), static_cast<int64_t>(1e6 + 3e6 / 4 + kParameters / 4));
}

TEST(ArrangementEstimate, ValuesWithinReplicasTakeTime) {
  NetworkNeeds needs = network_of(4, 2);
  for (SegmentNeeds& segment : needs.segments) segment.forward_sums = segment.backward_sums = {2, 1000};
  Cluster links{.workers = 2, .latency = 0.01, .bandwidth = 1e6};
  const StepTime time = one_of(estimate_arrangements(needs, 3, links), {.tp = 2}).time;
  EXPECT_NEAR(time.within, 3 * 4 * 2 * (2 * 0.01 + 0.001), 1e-9) << "both send all that they have";
  EXPECT_NEAR(time.computing, 3 * 4 * 0.75, 1e-9);
}

TEST(ArrangementEstimate, ZeroDividesUpdateAndState) {
  NetworkNeeds needs = network_of(1);
  needs.update = 8;
  const auto estimates = estimate_arrangements(needs, 4, free_links(4));
  const ArrangementEstimate whole = one_of(estimates, {}), half = one_of(estimates, {.zero = 1, .copies = 2}),
                            quarter = one_of(estimates, {.zero = 1, .copies = 1});
  EXPECT_NEAR(whole.time.update, 8, 1e-9);
  EXPECT_NEAR(half.time.update, 4, 1e-9);
  EXPECT_NEAR(quarter.time.update, 2, 1e-9);
  // Of the two state tensors, the sums that a keeper gets, and the result that nobody repeats (ARRANGEMENT.md).
  EXPECT_NEAR(static_cast<double>(whole.peak - half.peak), kParameters * (2 * 0.5 + 0.5 + 1), 1);
  EXPECT_NEAR(static_cast<double>(half.peak - quarter.peak), kParameters * (2 * 0.25 + 0.25), 1);
}

TEST(ArrangementEstimate, GradientsLeaveAndParametersComeBySegment) {
  NetworkNeeds needs = network_of(8);
  const auto bytes = [&](int zero) { return pass_bytes(needs, {}, {}, 1, zero).at(0); };
  constexpr double kSegment = kParameters / 8;
  EXPECT_EQ(bytes(0), static_cast<int64_t>(4e6 + kParameters)) << "all gradients, in the first segment's pass";
  EXPECT_EQ(bytes(2), static_cast<int64_t>(7 * 4e6 + 2 * kSegment)) << "a segment's gradients, and the ones before";
  EXPECT_EQ(bytes(3), static_cast<int64_t>(7 * 4e6 + 5 * kSegment)) << ".. and parameters: the next ones arrive";
  needs.first_readers[7] = 0;  // a tied head: its gradient is not complete before the last pass
  EXPECT_EQ(bytes(2), static_cast<int64_t>(6 * 4e6 + 3 * kSegment));
}

TEST(ArrangementEstimate, GradientsLeaveAsSegmentsAreDone) {
  const NetworkNeeds needs = network_of(2);
  Cluster links{.workers = 2, .latency = 0, .bandwidth = kParameters / 2};
  const auto exchange = [&] { return one_of(estimate_arrangements(needs, 2, links), {}).time.exchange; };
  // Half of the gradients go there and half of the sums come back: a second for each segment. The first segment's
  // backward pass covers two thirds of the second one's.
  EXPECT_NEAR(exchange(), 2 - 2.0 / 3, 1e-9);
  links.bandwidth = kParameters;
  EXPECT_NEAR(exchange(), 0.5, 1e-9) << "those of the last backward pass";
}

TEST(ArrangementEstimate, MessagesTakeProcessorTimeFromPasses) {
  const NetworkNeeds needs = network_of(2);
  const Cluster links{.workers = 2, .latency = 0, .bandwidth = kParameters, .processor = 0.1 / kParameters};
  const double exchange = one_of(estimate_arrangements(needs, 2, links), {}).time.exchange;
  EXPECT_NEAR(exchange, 0.5 + 0.5 * 0.1, 1e-9) << "half of the bytes move while a pass runs";
}

TEST(ArrangementEstimate, SharedParametersAreDoneLast) {
  NetworkNeeds needs = network_of(2);
  const Cluster links{.workers = 2, .latency = 0, .bandwidth = kParameters / 2};
  const auto exchange = [&] { return one_of(estimate_arrangements(needs, 2, links), {}).time.exchange; };
  const double apart = exchange();
  needs.homes = {1, 1};
  needs.first_readers = {0, 0};  // the head reads the parameter of the embeddings
  EXPECT_NEAR(exchange() - apart, 2.0 / 3, 1e-9) << "its gradient leaves after all passes";
}

TEST(ArrangementEstimate, WithoutZeroAllMembersDigestAllGradients) {
  NetworkNeeds needs = network_of(1);
  needs.digest = 4;
  const auto estimates = estimate_arrangements(needs, 4, free_links(4));
  EXPECT_NEAR(one_of(estimates, {}).time.update, 4, 1e-9);
  EXPECT_NEAR(one_of(estimates, {.zero = 1, .copies = 1}).time.update, 1, 1e-9) << "the chunks of an owner's buckets";
}

TEST(ArrangementEstimate, ZeroThreeFetchesParametersWhileOthersAreUsed) {
  const NetworkNeeds needs = network_of(4);
  Cluster links{.workers = 2, .latency = 0, .bandwidth = kParameters / 8, .copies = {1}};
  const auto exchange = [&](int zero) {
    return one_of(estimate_arrangements(needs, 2, links), {.zero = zero, .copies = 1}).time.exchange;
  };
  // Half of a segment's gradients take a second, and a backward pass two thirds of one.
  const double gradients = 4 - 3 * 2.0 / 3;
  EXPECT_NEAR(exchange(2), gradients + 4, 1e-9) << "half of the new parameters";
  // Half of a segment's parameters take a second, of which the pass before covers a part. The last segment's stay for
  // its backward pass.
  EXPECT_NEAR(exchange(3), gradients + 1 + 3 * (1 - 1.0 / 3) + 3 * (1 - 2.0 / 3), 1e-9);
  links.bandwidth = 1e30;
  EXPECT_NEAR(exchange(3), 0, 1e-9);
}

TEST(ArrangementEstimate, ThoseThatDoNotFitComeLast) {
  Cluster limited = free_links(4);
  const auto all = estimate_arrangements(network_of(4, 4), 4, limited);
  limited.memory = std::ranges::min_element(all, {}, &ArrangementEstimate::peak)->peak + 1;
  const auto estimates = estimate_arrangements(network_of(4, 4), 4, limited);
  EXPECT_EQ(estimates.size(), all.size());
  EXPECT_TRUE(estimates.front().fits);
  EXPECT_FALSE(estimates.back().fits);
  EXPECT_TRUE(std::ranges::is_partitioned(estimates, [](const auto& e) { return e.fits; }));
  for (const ArrangementEstimate& e : estimates) EXPECT_EQ(e.fits, e.peak <= limited.memory) << e.text();
}

TEST(ArrangementEstimate, TheSimplestOfEquallyFastOnesIsFirst) {
  const auto estimates = estimate_arrangements(network_of(4), 4, free_links(4));
  EXPECT_EQ(estimates[0].text(), "dp=4") << "with free exchange and updates, state may be divided or not";
  EXPECT_EQ(estimates[1].text(), "dp=4,zero=1 --copies 2");
  EXPECT_EQ(estimates[2].text(), "dp=4,zero=1 --copies 1");
}

// Three workers are replicas of two and of one, which gets a third of the rank gradients. It holds all of the network.
TEST(ArrangementEstimate, ReplicasMayHaveOtherSizes) {
  const NetworkNeeds needs = network_of(4, 2);
  const auto estimates = estimate_arrangements(needs, 6, free_links(3));
  const ArrangementEstimate together = one_of(estimates, {.tp = 2}), staged = one_of(estimates, {.pp = 2});
  EXPECT_EQ(together.text(), "tp=2");
  EXPECT_EQ(together.dp, 0);
  EXPECT_NEAR(together.time.all(), 4 * 4 * 0.75, 1e-9) << "four for two members, two (8 s) for one";
  EXPECT_NEAR(staged.time.all(), (4 + 1) * 2, 1e-9) << "four in a pipeline of two stages";
  EXPECT_GE(together.peak, one_of(estimate_arrangements(needs, 1, free_links(1)), {}).peak);
  for (const ArrangementEstimate& e : estimates) {
    EXPECT_TRUE(e.arrangement.replica() <= 3 || e.arrangement.replica() == 4) << e.text();
    EXPECT_EQ(std::ranges::count(estimates, e.arrangement, &ArrangementEstimate::arrangement), 1) << e.text();
  }
}

TEST(ArrangementEstimate, ComparesWhatIsAllowed) {
  NetworkNeeds needs = network_of(2);
  needs.most_zero = 0;
  for (const ArrangementEstimate& e : estimate_arrangements(needs, 4, free_links(6))) {
    EXPECT_EQ(e.arrangement.zero, 0);
    EXPECT_EQ(e.arrangement.tp, 1) << "there is one virtual shard";
    EXPECT_LE(e.arrangement.pp, 2) << "there are two segments";
    EXPECT_EQ(e.dp * e.arrangement.replica(), 6);  // replicas of equal size
  }
  needs.homes = {1, 1};
  for (const ArrangementEstimate& e : estimate_arrangements(needs, 4, free_links(6))) EXPECT_EQ(e.arrangement.pp, 1);
}

}  // namespace
}  // namespace elinvar
