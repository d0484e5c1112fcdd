#include <gtest/gtest.h>

#include <cstdlib>

#include "tensor/stream.h"
#include "tests/elastic_simulator.h"

namespace elinvar {
namespace {

Schedule schedule_of(uint64_t seed) {
  return {.seed = seed,
          .vranks = 1 + static_cast<int>(seed % 9),
          .steps = 4 + static_cast<int64_t>(seed / 9 % 8),
          .initial_workers = 1 + static_cast<int>(seed / 5 % 4),
          .min_workers = 1 + static_cast<int>(seed / 7 % 2),
          .faults = static_cast<int>(seed / 3 % 7)};
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

// Each seed is a schedule of joins, drains, kills, stalls, cuts and dying coordinators. ELINVAR_SCHEDULES: how many,
// ELINVAR_SCHEDULE: only this one, with its log.
TEST(ElasticProtocol, RandomSchedulesEndAsTheUndisturbedRun) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  const int64_t only = from_environment("ELINVAR_SCHEDULE", -1);
  const int64_t count = only >= 0 ? only + 1 : from_environment("ELINVAR_SCHEDULES", 2000);
  int failures = 0;
  int64_t generations = 0;
  for (int64_t seed = std::max<int64_t>(only, 0); seed < count && failures < 3; ++seed) {
    const SimulationResult result = simulate(schedule_of(static_cast<uint64_t>(seed)));
    generations += result.generations;
    if (result.violation.empty() && only < 0) continue;
    failures += !result.violation.empty();
    std::string log;
    for (const std::string& line : result.log) log += line + "\n";
    EXPECT_EQ(result.violation, "") << "schedule " << seed << "\n" << (only >= 0 || failures == 1 ? log : "");
  }
  EXPECT_GE(generations, count - std::max<int64_t>(only, 0));
}

}  // namespace
}  // namespace elinvar
