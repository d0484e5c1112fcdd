// Jobs of emulated GPUs whose arrangement changes while they train: in each arrangement the group of GPUs carries what
// it can, and the ledger is that of one worker on a CPU, whatever happens to workers meanwhile.
#include <fmt/format.h>
#include <gtest/gtest.h>

#ifdef ELINVAR_EMULATION

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/jobs/division_faults.h"
#include "tests/support/environment.h"

namespace elinvar {
namespace {

using test::Division;
using test::Ended;
using test::every_fault;
using Json = nlohmann::json;

class RearrangedGroups : public test::DivisionFaults {
 protected:
  static constexpr int64_t kLong = 1000;  // steps

  static Words on_gpus(Words words) {
    words.insert(words.end(), {"--device", "emulated"});
    return words;
  }
  // Returns what the group carries in the newest generation that begins with this arrangement; "": it has not yet.
  std::string carried(const std::string& name, const std::string& entries) const {
    int64_t generation = 0;
    for (const Json& event : events(name, "reason"))
      if (event.contains("members") && event.at("reason") == "arrangement " + entries) generation = event.at("number");
    for (const Json& event : events(name, "carries"))
      if (event.at("generation") == generation) return event.at("carries");
    return "";
  }
  // Asks a running job for an arrangement. Returns what a group carries once the job has the arrangement `all`.
  std::string arrange(const std::string& name, const std::string& entries, const std::string& all) const {
    const Ended asked = wait(spawn({"ctl", folder_ / name, "arrange", entries}, "ctl"), "ctl");
    EXPECT_EQ(asked.code, 0) << asked.err;
    std::string carries;
    until([&] { return !(carries = carried(name, all)).empty() || recorded(name) == kLong; });
    return carries;
  }
};

// The job is long enough for a group to make steps in each arrangement.
TEST_F(RearrangedGroups, FollowRequestsWhileTheJobTrains) {
  const Words length = {"--steps", std::to_string(kLong)};
  const Ended alone = wait(start("alone", length), "alone");
  ASSERT_EQ(alone.code, 0) << alone.err;
  const pid_t job = start("run", on_gpus(Division{.dp = 2, .tp = 1}.complete(length)));
  until([&] { return !planes("run").empty(); });
  EXPECT_EQ(planes("run"), Words{"nccl: gradients"});
  EXPECT_EQ(arrange("run", "tp=2", "tp=2"), "gradients, values of shards");
  EXPECT_EQ(arrange("run", "tp=1,pp=2", "pp=2"), "gradients, values between stages");
  EXPECT_EQ(arrange("run", "zero=1,copies=1", "pp=2,zero=1,copies=1"), "gradients, parameters, values between stages");
  EXPECT_EQ(arrange("run", "zero=2", "pp=2,zero=2,copies=1"), "parameters, values between stages");
  EXPECT_EQ(arrange("run", "zero=3", "pp=2,zero=3,copies=1"), "values between stages");
  EXPECT_EQ(arrange("run", "pp=1,zero=2", "zero=2,copies=1"), "parameters");
  EXPECT_LT(recorded("run"), kLong) << "the last request came too late";
  const Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), ledger("alone"));
  EXPECT_EQ(digests("run"), digests("alone"));
}

// A worker dies in one of the first steps of another arrangement, at several points, and another one joins. Members
// come to most of these points in this arrangement only.
TEST_F(RearrangedGroups, SurviveDeathsInTheMiddle) {
  int number = 0;
  for (const auto& [entries, points] : {std::pair<const char*, Words>{"tp=2", {"within", "update"}},
                                        {"pp=2", {"boundary", "trailer"}},
                                        {"zero=1", {"value", "part"}},
                                        {"zero=2", {"contribute", "value"}},
                                        {"zero=3", {"fetch", "update"}}})
    for (const std::string& point : points) {
      if (!every_fault() && number++ % 3 != 0) continue;
      const std::string name = fmt::format("{}-{}", entries, point);
      std::string chaos = fmt::format("arrange:step=40,{};join:step=60;arrange:step=90,tp=1,pp=1,zero=0", entries);
      for (int step = 43; step < 60; ++step) chaos += fmt::format(";kill:worker=2,step={},at={}", step, point);
      EXPECT_EQ(run_through(name, on_gpus(options({.dp = 3, .tp = 1}, chaos))), "") << name;
      EXPECT_EQ(count(name, "kill"), 1u) << name;
      EXPECT_GE(planes(name).size(), 1u) << name;
    }
}

// ELINVAR_CHAOS and ELINVAR_CHAOS_SEED as in chaos_test.cpp.
TEST_F(RearrangedGroups, RandomSchedulesEndAsTheUndisturbedRun) {
  const int64_t runs = test::from_environment("ELINVAR_CHAOS", every_fault() ? 30 : 1),
                first = test::from_environment("ELINVAR_CHAOS_SEED", 3);
  for (int64_t seed = first; seed < first + runs; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<uint64_t>(below)); };
    const Division division{
        .dp = 1 + draw(2), .tp = 1 + draw(2), .pp = 1 + draw(3), .zero = draw(4), .copies = 1 + draw(2)};
    std::string changes;
    for (int step = 20 + draw(40); step < 150; step += 20 + draw(60))
      changes += fmt::format(";arrange:step={},zero={},copies={},tp={},pp={}", step, draw(4), 1 + draw(2), 1 + draw(2),
                             1 + draw(3));
    const char* const point = division.pp > 1 ? "boundary" : division.tp > 1 ? "within" : "update";
    if (!endures_random_faults(seed, division, point, changes, {"--device", "emulated"})) return;
  }
}

}  // namespace
}  // namespace elinvar

#endif
