#include "elastic/step/model_replicas.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace elinvar
