// Jobs whose arrangement changes while they train (`train ctl RUN arrange`): the ledger of one worker, whatever happens
// to workers meanwhile.
#include <fmt/format.h>

#include <random>

#include "tests/jobs/division_faults.h"
#include "tests/support/environment.h"

namespace elinvar {
namespace {

using test::Division;
using test::every_fault;
using Json = nlohmann::json;

struct RearrangedOptimizer {
  const char *name, *text;
};

class Rearrangements : public test::DivisionFaults, public testing::WithParamInterface<RearrangedOptimizer> {
 protected:
  Rearrangements() : DivisionFaults(GetParam().text) {}

  // The arrangements of the generations, in order, each once.
  Words arrangements(const std::string& name) const {
    Words all;
    for (const Json& event : events(name, "reason"))
      if (const std::string reason = event.at("reason"); reason.starts_with("arrangement "))
        all.push_back(reason.substr(reason.find(' ') + 1));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(, Rearrangements,
                         testing::Values(RearrangedOptimizer{"adamw", test::kTinyAdamW},
                                         RearrangedOptimizer{"lamb", test::kTinyLamb}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(Rearrangements, FollowEachOther) {
  const std::string chaos =
      "arrange:step=10,tp=2;arrange:step=25,zero=1;arrange:step=40,tp=1,pp=2;arrange:step=55,zero=2,copies=1;"
      "arrange:step=70,zero=3;arrange:step=85,zero=0;arrange:step=100,zero=3,copies=2;arrange:step=115,pp=1,tp=3;"
      "arrange:step=130,zero=1";
  EXPECT_EQ(run_through("all", options({.dp = 3, .tp = 1}, chaos)), "");
  const Words had = arrangements("all");
  // Requests that come faster than generations begin are one.
  EXPECT_GE(had.size(), 5u);
  ASSERT_FALSE(had.empty());
  EXPECT_EQ(had.back(), "tp=3,zero=1,copies=2");
  for (const char* part : {"pp=2", "zero=3"})
    EXPECT_TRUE(std::ranges::any_of(had, [&](const std::string& each) { return each.find(part) != each.npos; }))
        << part;
}

// A worker dies about when members begin to hold the state otherwise; others come before and after that.
TEST_P(Rearrangements, SurviveDeathsInTheMiddle) {
  int number = GetParam().text == test::kTinyLamb ? 1 : 0;
  for (const auto& [from, to] : {std::pair(0, 1), {0, 3}, {1, 3}, {3, 0}, {3, 2}, {2, 0}})
    for (const char* point : {"forward", "contribute", "part", "trailer", "update"}) {
      if (!every_fault() && number++ % 5 != 0) continue;
      const std::string name = fmt::format("from{}-to{}-{}", from, to, point);
      const std::string chaos = fmt::format(
          "arrange:step=40,zero={1};kill:worker=2,step=41,at={2};kill:worker=1,step=42,at={2};join:step=39;join:step="
          "60;"
          "arrange:step=90,zero={0},tp=2;kill:worker=0,step=92,at={2}",
          from, to, point);
      EXPECT_EQ(run_through(name, options({.dp = 3, .tp = 1, .zero = from, .copies = 2}, chaos)), "") << name;
    }
}

// ELINVAR_CHAOS and ELINVAR_CHAOS_SEED as in chaos_test.cpp.
TEST_P(Rearrangements, RandomSchedulesEndAsTheUndisturbedRun) {
  const int64_t runs = test::from_environment("ELINVAR_CHAOS", every_fault() ? 60 : 1),
                first = test::from_environment("ELINVAR_CHAOS_SEED", GetParam().text == test::kTinyLamb ? 2 : 0);
  for (int64_t seed = first; seed < first + runs; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<uint64_t>(below)); };
    Division division{.dp = 2 + draw(2), .tp = 1, .zero = draw(4), .copies = 1 + draw(2)};
    std::string changes;
    for (int step = 1 + draw(30); step < 150; step += 1 + draw(40)) {
      changes += fmt::format(";arrange:step={},zero={}", step, draw(4));
      if (draw(2) == 0) changes += fmt::format(",copies={}", 1 + draw(2));
      if (draw(2) == 0) changes += fmt::format(",tp={}", 1 + draw(3));
      if (draw(2) == 0) changes += fmt::format(",pp={}", 1 + draw(3));
    }
    if (!endures_random_faults(seed, division, "contribute", changes)) return;
  }
}

}  // namespace
}  // namespace elinvar
