#include "elastic/step/model_replicas.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Places = std::vector<ReplicaPlace>;

Places dealt(int shards, int most, const std::vector<double>& speeds) {
  return deal_replicas({.shards = shards, .tp = most}, speeds);
}

TEST(ModelReplicas, AreAsFewAsPossibleAndOfEqualSizes) {
  EXPECT_EQ(dealt(4, 2, {1}), (Places{{0, {0, 4}}}));
  EXPECT_EQ(dealt(4, 2, {1, 1}), (Places{{0, {0, 2}}, {0, {2, 4}}}));
  EXPECT_EQ(dealt(4, 2, {1, 1, 1}), (Places{{0, {0, 2}}, {0, {2, 4}}, {1, {0, 4}}}));
  EXPECT_EQ(dealt(4, 4, {1, 1, 1, 1, 1}), (Places{{0, {0, 2}}, {0, {2, 3}}, {0, {3, 4}}, {1, {0, 2}}, {1, {2, 4}}}));
  EXPECT_EQ(dealt(1, 1, {1, 1}), (Places{{0, {0, 1}}, {1, {0, 1}}})) << "without tensor parallelism";
  EXPECT_THROW(dealt(4, 2, {}), UsageError);
  EXPECT_THROW(dealt(4, 5, {1}), UsageError);
  EXPECT_THROW(dealt(4, 0, {1}), UsageError);
}

TEST(ModelReplicas, ShareShardsBySpeed) {
  EXPECT_EQ(dealt(4, 2, {3, 1}), (Places{{0, {0, 3}}, {0, {3, 4}}}));
  EXPECT_EQ(dealt(4, 2, {1, 100}), (Places{{0, {0, 1}}, {0, {1, 4}}})) << "each computes at least one";
  EXPECT_EQ(dealt(6, 3, {1, 4, 1, 1, 1, 4}),
            (Places{{0, {0, 1}}, {0, {1, 5}}, {0, {5, 6}}, {1, {0, 1}}, {1, {1, 2}}, {1, {2, 6}}}));
}

TEST(ModelReplicas, HaveAllShardsBetweenThem) {
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    const int shards = 1 + static_cast<int>(random() % 16), most = 1 + static_cast<int>(random() % 16) % shards;
    std::vector<double> speeds(1 + random() % 20);
    for (double& speed : speeds) speed = 0.01 + static_cast<double>(random() % 1000);
    const Places places = dealt(shards, most, speeds);
    ASSERT_EQ(places.size(), speeds.size());
    std::vector<int> sizes;
    int end = 0;
    for (const ReplicaPlace& place : places) {
      if (place.replica == static_cast<int>(sizes.size())) {
        EXPECT_TRUE(sizes.empty() || end == shards);
        sizes.push_back(0);
        end = 0;
      }
      ASSERT_EQ(place.replica + 1, static_cast<int>(sizes.size())) << "neighbours";
      EXPECT_EQ(place.shards.begin, end);
      EXPECT_GE(place.shards.size(), 1);
      end = place.shards.end;
      ++sizes.back();
    }
    EXPECT_EQ(end, shards);
    const auto [least, largest] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_LE(*largest, most);
    EXPECT_LE(*largest - *least, 1);
    EXPECT_EQ(static_cast<int>(sizes.size()), (static_cast<int>(speeds.size()) + most - 1) / most);
  }
}

TEST(ModelReplicas, AreAsFastAsTheirSlowestMember) {
  const std::vector<double> speeds = {3, 2, 5};
  const Places places = {{0, {0, 3}}, {0, {3, 4}}, {1, {0, 4}}};
  EXPECT_EQ(replica_speeds(4, places, speeds), (std::vector<double>{4, 5})) << "3 * 4 / 3 and 2 * 4 / 1; and one alone";
}

TEST(ModelReplicas, ShareTheirVirtualRanks) {
  const Places places = {{0, {0, 3}}, {0, {3, 4}}, {1, {0, 4}}};
  const std::vector<std::vector<Interval>> of_replicas = {{{0, 2}, {4, 5}}, {{2, 4}}};
  EXPECT_EQ(shares_of_members(places, of_replicas),
            (std::vector<std::vector<Interval>>{of_replicas[0], of_replicas[0], of_replicas[1]}));
}

// --- With stages.

const SegmentCosts kFour{.seconds = {1, 2, 3, 2}, .homes = {0, 1, 2, 3}};

TEST(ModelReplicas, ShareSegmentsSoThatTheSlowestStageIsFast) {
  const ReplicaLimits limits{.shards = 2, .tp = 1, .pp = 2, .segments = kFour};
  EXPECT_EQ(deal_replicas(limits, std::vector<double>{1, 1}),
            (Places{{0, {0, 2}, 0, {{0, 2}}, 3.0 / 8}, {0, {0, 2}, 1, {{2, 4}}, 5.0 / 8}}));
  EXPECT_EQ(deal_replicas(limits, std::vector<double>{3, 1}),
            (Places{{0, {0, 2}, 0, {{0, 3}}, 6.0 / 8}, {0, {0, 2}, 1, {{3, 4}}, 2.0 / 8}}));
  EXPECT_EQ(deal_replicas(limits, std::vector<double>{1}), (Places{{0, {0, 2}}})) << "alone it has all segments";
}

// As in a job that came to have stages while it trained, of which another coordinator knows no times.
TEST(ModelReplicas, TakeSegmentsThatWereNotMeasuredToBeEquallyLong) {
  const ReplicaLimits limits{.shards = 2, .tp = 1, .pp = 2, .segments = {.homes = kFour.homes}};
  EXPECT_EQ(most_stages(limits.segments), 4);
  EXPECT_EQ(deal_replicas(limits, std::vector<double>{1, 1}),
            (Places{{0, {0, 2}, 0, {{0, 2}}, 0.5}, {0, {0, 2}, 1, {{2, 4}}, 0.5}}));
}

TEST(ModelReplicas, ComputeSegmentsWithThoseThatReadTheirParameters) {
  const ReplicaLimits limits{
      .shards = 1, .tp = 1, .pp = 2, .segments = {.seconds = {1, 1, 1, 1}, .homes = {3, 1, 2, 3}}};
  EXPECT_EQ(deal_replicas(limits, std::vector<double>{1, 1}),
            (Places{{0, {0, 1}, 0, {{1, 3}}, 0.5}, {0, {0, 1}, 1, {{0, 1}, {3, 4}}, 0.5}}));
  EXPECT_EQ(most_stages(limits.segments), 3);
  EXPECT_EQ(most_stages(kFour), 4);
  EXPECT_THROW(deal_replicas({.pp = 4, .segments = limits.segments}, std::vector<double>{1}), UsageError);
  EXPECT_THROW(deal_replicas({.pp = 2}, std::vector<double>{1}), UsageError) << "no segments are known";
  EXPECT_THROW(most_stages({.seconds = {1, 1}, .homes = {0, 0}}), UsageError) << "an earlier one";
  EXPECT_THROW(most_stages({.seconds = {1, 1}, .homes = {0, 2}}), UsageError);
}

TEST(ModelReplicas, HaveStagesOfEqualSizes) {
  const ReplicaLimits limits{.shards = 4, .tp = 2, .pp = 3, .segments = kFour};
  const auto sizes = [&](int members) {
    std::vector<std::vector<int>> stages;  // by replica
    for (const ReplicaPlace& place : deal_replicas(limits, std::vector<double>(static_cast<size_t>(members), 1))) {
      stages.resize(static_cast<size_t>(place.replica + 1));
      stages.back().resize(static_cast<size_t>(place.stage + 1));
      ++stages.back().back();
    }
    return stages;
  };
  using Sizes = std::vector<std::vector<int>>;
  EXPECT_EQ(sizes(1), (Sizes{{1}}));
  EXPECT_EQ(sizes(2), (Sizes{{1, 1}}));
  EXPECT_EQ(sizes(4), (Sizes{{2, 1, 1}}));
  EXPECT_EQ(sizes(6), (Sizes{{2, 2, 2}}));
  EXPECT_EQ(sizes(7), (Sizes{{2, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(sizes(13), (Sizes{{2, 2, 1}, {2, 1, 1}, {2, 1, 1}}));
}

// The least time of the slowest of stages of these speeds, over all ways to cut the units from `first` on.
double least_time(const std::vector<double>& units, size_t first, std::span<const double> speeds) {
  if (speeds.size() == 1)
    return std::accumulate(units.begin() + static_cast<std::ptrdiff_t>(first), units.end(), 0.0) / speeds[0];
  double least = 1e300, own = 0;
  for (size_t end = first + 1; end + speeds.size() - 1 <= units.size(); ++end) {
    own += units[end - 1];
    least = std::min(least, std::max(own / speeds[0], least_time(units, end, speeds.subspan(1))));
  }
  return least;
}

TEST(ModelReplicas, HaveAllSegmentsBetweenTheirStagesAndNoSlowerStageThanNeeded) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 1000; ++i) {
    SegmentCosts costs;
    const int segments = 1 + below(8);
    for (int s = 0; s < segments; ++s) {
      costs.seconds.push_back(0.5 + below(10));
      costs.homes.push_back(s);
    }
    for (int s = segments - 2; s >= 0; --s)  // a later one that is its own home
      if (below(4) == 0)
        costs.homes[static_cast<size_t>(s)] = costs.homes[static_cast<size_t>(s + 1 + below(segments - 1 - s))];
    std::vector<double> units;
    for (int home = 0; home < segments; ++home) {
      double sum = 0;
      for (int s = 0; s <= home; ++s)
        if (costs.homes[static_cast<size_t>(s)] == home) sum += costs.seconds[static_cast<size_t>(s)];
      if (sum > 0) units.push_back(sum);
    }
    ASSERT_EQ(most_stages(costs), static_cast<int>(units.size()));
    ReplicaLimits limits{.shards = 1 + below(4), .pp = 1 + below(static_cast<int>(units.size())), .segments = costs};
    limits.tp = 1 + below(limits.shards);
    std::vector<double> speeds(static_cast<size_t>(1 + below(12)));
    for (double& speed : speeds) speed = 0.1 + below(20);
    const Places places = deal_replicas(limits, speeds);
    const std::vector<int> sizes = replica_sizes(limits, static_cast<int>(speeds.size()));
    ASSERT_EQ(places.size(), speeds.size());
    ASSERT_EQ(places.back().replica + 1, static_cast<int>(sizes.size()));
    for (size_t r = 0, first = 0; r < sizes.size(); first += static_cast<size_t>(sizes[r++])) {
      const std::span own(places.data() + first, static_cast<size_t>(sizes[r]));
      const int stages = std::min(limits.pp, sizes[r]);
      ASSERT_EQ(own.back().stage + 1, stages);
      std::vector<double> stage_speeds(static_cast<size_t>(stages), 0), work(static_cast<size_t>(stages), 0);
      std::map<int, int> stage_of;  // by segment
      for (size_t m = 0; m < own.size(); ++m) {
        const ReplicaPlace& place = own[m];
        EXPECT_EQ(place.replica, static_cast<int>(r));
        const auto stage = static_cast<size_t>(place.stage);
        stage_speeds[stage] += speeds[first + m];
        const bool begins = m == 0 || own[m - 1].stage != place.stage;
        EXPECT_EQ(place.shards.begin, begins ? 0 : own[m - 1].shards.end);
        EXPECT_TRUE(m + 1 < own.size() && own[m + 1].stage == place.stage ? place.shards.end < limits.shards
                                                                          : place.shards.end == limits.shards);
        if (!begins) {
          EXPECT_EQ(place.segments, own[m - 1].segments);
          EXPECT_EQ(place.work, own[m - 1].work);
          continue;
        }
        work[stage] = place.work;
        for (const Interval& run : place.segments)
          for (int s = run.begin; s < run.end; ++s) EXPECT_TRUE(stage_of.emplace(s, place.stage).second) << "twice";
      }
      if (stages == 1) {
        EXPECT_TRUE(own[0].segments.empty() && own[0].work == 1);
        continue;
      }
      ASSERT_EQ(stage_of.size(), static_cast<size_t>(segments)) << "each segment once";
      for (int s = 0; s < segments; ++s) EXPECT_EQ(stage_of.at(s), stage_of.at(costs.homes[static_cast<size_t>(s)]));
      const double all = std::accumulate(units.begin(), units.end(), 0.0);
      double slowest = 0;
      for (size_t s = 0; s < work.size(); ++s) slowest = std::max(slowest, work[s] * all / stage_speeds[s]);
      EXPECT_NEAR(slowest, least_time(units, 0, stage_speeds), 1e-9 * slowest);
    }
  }
}

TEST(ModelReplicas, WithStagesAreAsFastAsTheirSlowestMember) {
  const Places places = {
      {0, {0, 1}, 0, {{0, 2}}, 0.25}, {0, {1, 2}, 0, {{0, 2}}, 0.25}, {0, {0, 2}, 1, {{2, 4}}, 0.75}};
  EXPECT_EQ(portion(2, places[0]), 0.125);
  EXPECT_EQ(portion(2, places[2]), 0.75);
  EXPECT_EQ(replica_speeds(2, places, std::vector<double>{1, 2, 3}), std::vector<double>{4}) << "3 / 0.75";
}

}  // namespace
}  // namespace elinvar
