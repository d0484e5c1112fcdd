// The arrangements of a run's generations on its page.
#include "tools/repro/report_arrangement.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

// Model replicas of two workers, which are stages of one segment each.
Generation pipelines(int64_t number, int replicas) {
  Generation g{.number = number, .first_step = -1, .shards = 2};
  for (int i = 0; i < 2 * replicas; ++i) {
    GenerationMember member;
    member.id = i + 1;
    member.share = {{i / 2, i / 2 + 1}};
    member.place = {.replica = i / 2, .shards = {0, 2}, .stage = i % 2, .segments = {{i % 2, i % 2 + 1}}, .work = 0.5};
    g.members.push_back(member);
  }
  return g;
}

TEST(Arrangements, NameStagesAndFirstSteps) {
  Generation first = pipelines(1, 2);
  first.first_step = 0;
  first.sharding = Sharding{.zero = 1, .keepers = {.ids = {1, 2, 3, 4}, .copies = 2}};
  const std::vector<Json> events = {{{"event", "segments"}, {"names", {"trunk", "head"}}, {"seconds", {1.0, 2.0}}},
                                    {{"event", "switched"}, {"generation", 2}, {"step", 41}}};
  const Ordered told = arrangements({first, pipelines(2, 1), pipelines(3, 1)}, events).at("generations");
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].at("text"),
            "2 model replicas of 2 stages; zero=1: 2 copies of the optimizer's state among 4 workers");
  EXPECT_EQ(told[1].at("text"), "1 model replica of 2 stages");
  EXPECT_EQ(told[0].at("step"), 1);
  EXPECT_EQ(told[1].at("step"), 42);
  EXPECT_TRUE(told[2].at("step").is_null()) << "never reached";
  const Ordered& stages = told[0].at("replicas")[1].at("stages");
  EXPECT_EQ(stages[0].at("names"), "trunk");
  EXPECT_EQ(stages[1].at("names"), "head");
  EXPECT_EQ(stages[1].at("members")[0].at("id"), 4);
  EXPECT_EQ(stages[1]["members"][0].at("part"), 0.5);
}

TEST(Arrangements, StaySmallHoweverManyThereAre) {
  std::vector<Generation> generations;
  for (int number = 1; number <= 100; ++number) generations.push_back(pipelines(number, 20));
  generations.push_back(pipelines(101, 600));
  const Ordered told = arrangements(generations, {});
  EXPECT_EQ(told.at("generations").size() + told.at("generations_left_out").get<size_t>(), 101u);
  EXPECT_EQ(told["generations"].back().at("replicas").size(), 600u) << "the newest one is shown whole";
  EXPECT_EQ(told["generations"].front().at("replicas_left_out"), 20);
  size_t replicas = 0;
  for (const Ordered& g : told["generations"]) replicas += g.at("replicas").size();
  EXPECT_EQ(replicas, 750u);
}

TEST(Arrangements, NoneIfNothingIsDivided) {
  Generation whole = pipelines(1, 1);
  whole.shards = 0;
  EXPECT_TRUE(arrangements({whole}, {}).is_null());
}

}  // namespace
}  // namespace elinvar
