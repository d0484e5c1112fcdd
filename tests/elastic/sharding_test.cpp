#include "elastic/step/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Ids = std::vector<int>;

BucketDeal deal_to(int workers, int copies, int first_id = 1) {
  BucketDeal deal{.copies = copies};
  for (int i = 0; i < workers; ++i) deal.ids.push_back(first_id + i);
  return deal;
}

// The difference between the most and the fewest buckets that a worker has.
int spread_of(const BucketDeal& deal, const std::map<int, int>& buckets_of) {
  int least = 1 << 30, most = 0;
  for (const int id : deal.ids) {
    const int has = buckets_of.contains(id) ? buckets_of.at(id) : 0;
    least = std::min(least, has);
    most = std::max(most, has);
  }
  return most - least;
}

TEST(Sharding, OwnersAndKeepersHaveEqualNumbersOfBuckets) {
  for (int workers = 1; workers <= 16; ++workers)
    for (int copies = 1; copies <= 4; ++copies)
      for (int buckets = 0; buckets <= 120; buckets += buckets < 40 ? 1 : 7) {
        const BucketDeal deal = deal_to(workers, copies, /*first_id=*/1 + buckets % 5);
        const auto keepers = keepers_of(deal, buckets);
        ASSERT_EQ(keepers.size(), static_cast<size_t>(buckets));
        std::map<int, int> owned, kept;
        for (const Ids& of : keepers) {
          ASSERT_EQ(of.size(), static_cast<size_t>(std::min(copies, workers)));
          EXPECT_EQ(std::set<int>(of.begin(), of.end()).size(), of.size()) << "a worker keeps a bucket once";
          ++owned[of[0]];
          for (const int id : of) ++kept[id];
        }
        for (const auto& [id, count] : kept) EXPECT_NE(std::find(deal.ids.begin(), deal.ids.end(), id), deal.ids.end());
        EXPECT_LE(spread_of(deal, owned), 1)
            << workers << " workers, " << copies << " copies, " << buckets << " buckets";
        EXPECT_LE(spread_of(deal, kept), 1)
            << workers << " workers, " << copies << " copies, " << buckets << " buckets";
      }
}

TEST(Sharding, KeepersAreAFunctionOfTheDeal) {
  const BucketDeal deal{.ids = {3, 8, 9}, .copies = 2};
  EXPECT_EQ(keepers_of(deal, 6), keepers_of(deal, 6));
  // Each process computes them, so they must be the same on every platform.
  EXPECT_EQ(keepers_of(deal, 6), (std::vector<Ids>{{9, 3}, {9, 8}, {8, 9}, {3, 9}, {3, 8}, {8, 3}}));
  EXPECT_NE(keepers_of({.ids = {3, 8, 10}, .copies = 2}, 6), keepers_of(deal, 6));
}

TEST(Sharding, WithFewWorkersAllKeepEverything) {
  for (const Ids& of : keepers_of({.ids = {4, 6}, .copies = 3}, 5))
    EXPECT_EQ(std::set<int>(of.begin(), of.end()), (std::set<int>{4, 6}));
  for (const Ids& of : keepers_of({.ids = {4}, .copies = 2}, 5)) EXPECT_EQ(of, Ids{4});
  EXPECT_THROW(keepers_of({.ids = {}, .copies = 1}, 5), UsageError);
  EXPECT_THROW(keepers_of({.ids = {1}, .copies = 0}, 5), UsageError);
}

// How many buckets get a keeper as `before` becomes `after`.
int moved_buckets(const BucketDeal& before, const BucketDeal& after, int buckets) {
  const auto had = keepers_of(before, buckets), have = keepers_of(after, buckets);
  int count = 0;
  for (size_t b = 0; b < had.size(); ++b)
    for (const int id : have[b]) count += std::find(had[b].begin(), had[b].end(), id) == had[b].end();
  return count;
}

// The least possible is the share of the worker that comes or goes: 1 / workers.
TEST(Sharding, AWorkerThatComesOrGoesMovesLittleMoreThanItsShare) {
  constexpr int kBuckets = 500;
  for (int workers = 2; workers <= 16; ++workers)
    for (int copies = 1; copies <= 3; ++copies) {
      const BucketDeal all = deal_to(workers, copies);
      double went = 0, came = 0, worst = 0;
      for (int i = 0; i < workers; ++i) {
        BucketDeal fewer = all;
        fewer.ids.erase(fewer.ids.begin() + i);
        const double goes = moved_buckets(all, fewer, kBuckets), comes = moved_buckets(fewer, all, kBuckets);
        went += goes / workers;
        came += comes / workers;
        worst = std::max({worst, goes, comes});
      }
      const double share = static_cast<double>(kBuckets) * std::min(copies, workers) / workers;
      const double most = workers <= 8 ? 1.3 : 1.5;
      EXPECT_LE(went, most * share) << workers << " workers, " << copies << " copies";
      EXPECT_LE(came, most * share) << workers << " workers, " << copies << " copies";
      EXPECT_LE(worst, 1.8 * share) << workers << " workers, " << copies << " copies";
    }
}

TEST(Sharding, TheFirstHolderThatIsLeftProvidesABucket) {
  const Sharding sharding{.holders = {.ids = {1, 2, 3, 4}, .copies = 2}};
  const auto holders = keepers_of(sharding.holders, 40);
  const std::vector<int> all = providers_of(sharding, 40, {1, 2, 3, 4, 5});
  const std::vector<int> left = providers_of(sharding, 40, {1, 3, 4, 5});
  const std::vector<int> one = providers_of(sharding, 40, {3, 5});
  bool second = false, none = false;
  for (size_t b = 0; b < 40; ++b) {
    EXPECT_EQ(all[b], holders[b][0]) << "the owner";
    EXPECT_EQ(left[b], holders[b][0] == 2 ? holders[b][1] : holders[b][0]) << "2 is gone";
    const bool has = std::find(holders[b].begin(), holders[b].end(), 3) != holders[b].end();
    EXPECT_EQ(one[b], has ? 3 : 0) << "nobody else has it";
    second = second || holders[b][0] == 2;
    none = none || !has;
  }
  EXPECT_TRUE(second && none);
  EXPECT_EQ(providers_of({}, 2, {1, 2}), (std::vector<int>{0, 0})) << "nobody holds anything";
}

// Each of those that have restored the state can provide every bucket, and they share the work.
TEST(Sharding, WhoHasTheWholeStateProvidesItsPart) {
  const Sharding sharding{.holders = {.ids = {2, 4, 7}, .copies = 1}, .whole = true};
  EXPECT_EQ(providers_of(sharding, 5, {2, 4, 5, 7}), (std::vector<int>{2, 4, 7, 2, 4}));
  EXPECT_EQ(providers_of(sharding, 3, {5, 7}), (std::vector<int>{7, 7, 7}));
  EXPECT_EQ(providers_of(sharding, 2, {5}), (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace elinvar
