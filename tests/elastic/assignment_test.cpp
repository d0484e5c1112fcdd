#include "elastic/step/assignment.h"

#include <nlohmann/json.hpp>
#include <gtest/gtest.h>

#include "elastic/run/generation_store.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using Shares = std::vector<std::vector<Interval>>;

TEST(Assignment, CoversAllInProportionToSpeed) {
  EXPECT_EQ(assign(6, std::vector<double>{1, 1, 1}), (Shares{{{0, 2}}, {{2, 4}}, {{4, 6}}}));
  EXPECT_EQ(assign(6, std::vector<double>{2, 1}), (Shares{{{0, 4}}, {{4, 6}}}));
  EXPECT_EQ(assign(2, std::vector<double>{1, 1, 1}), (Shares{{{0, 1}}, {{1, 2}}, {}}));  // a spare
  EXPECT_EQ(assign(5, std::vector<double>{1}), (Shares{{{0, 5}}}));
  EXPECT_THROW(assign(5, std::vector<double>{}), UsageError);
  EXPECT_THROW(assign(5, std::vector<double>{1, 0}), UsageError);
}

TEST(Assignment, IsNeverSlowerThanAnyOtherAssignmentOfWholeRanks) {
  const std::vector<double> speeds = {3.1, 1.7, 0.4};
  for (int n = 1; n < 20; ++n) {
    double best = 1e9;
    for (int a = 0; a <= n; ++a)
      for (int b = 0; a + b <= n; ++b)
        best = std::min(best, std::max({a / speeds[0], b / speeds[1], (n - a - b) / speeds[2]}));
    EXPECT_DOUBLE_EQ(step_time(assign(n, speeds), speeds), best) << n;
  }
}

TEST(Assignment, OrphansGoToWhoeverIsFinishedFirst) {
  EXPECT_EQ(assign_orphans(8, {{{0, 3}}, {{6, 8}}}, std::vector<double>{1, 1}),
            (Shares{{{0, 3}, {4, 5}}, {{3, 4}, {5, 8}}}));
  EXPECT_EQ(assign_orphans(4, {{}, {}}, std::vector<double>{1, 3}), (Shares{{{2, 3}}, {{0, 2}, {3, 4}}}));
  EXPECT_THROW(assign_orphans(4, {{{0, 3}}, {{2, 4}}}, std::vector<double>{1, 1}), UsageError);
}

TEST(Generations, ARecordIsCreatedOnce) {
  const test::TemporaryFolder folder;
  GenerationStore store(folder / "run");
  EXPECT_FALSE(store.newest());
  Generation g{.number = 3, .run = 99, .first_step = 7, .members = {}, .next_id = 5, .reason = "why"};
  g.members = {{.id = 4,
                .peer = 1234567890123456789u,
                .endpoint = "tcp://h:1",
                .share = {{0, 2}},
                .first_share = {{0, 1}, {3, 4}}}};
  EXPECT_TRUE(store.create(g));
  EXPECT_FALSE(store.create(g));
  g.number = 12;
  g.sharding = {.zero = 1, .keepers = {.ids = {4}, .copies = 2}, .holders = {.ids = {2, 3}, .copies = 2}};
  EXPECT_TRUE(store.create(g));
  const Generation read = *store.newest();
  EXPECT_EQ(to_json(read), to_json(g));
  EXPECT_EQ(read.sharding, g.sharding);
  EXPECT_EQ(read.share(0, 7), (std::vector<Interval>{{0, 1}, {3, 4}}));
  EXPECT_EQ(read.share(0, 8), (std::vector<Interval>{{0, 2}}));
}

TEST(Generations, ARecordSaysWhereTheOptimizersStateIs) {
  Generation g{.number = 1, .members = {}, .reason = ""};
  EXPECT_EQ(generation_from(to_json(g)).sharding, std::nullopt);
  g.sharding = {.zero = 2, .keepers = {.ids = {1, 4}, .copies = 3}, .holders = {.ids = {1, 2}}, .whole = true};
  EXPECT_EQ(generation_from(to_json(g)).sharding, g.sharding);
}

}  // namespace
}  // namespace elinvar
