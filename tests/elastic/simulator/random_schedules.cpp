#include "tests/elastic/simulator/random_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tensor/stream.h"
#include "tests/support/environment.h"

namespace elinvar {

Happened expect_schedules_hold(int64_t count, const std::function<Schedule(int64_t seed)>& schedule_of) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  const int64_t only = test::from_environment("ELINVAR_SCHEDULE", -1);
  count = only >= 0 ? only + 1 : test::from_environment("ELINVAR_SCHEDULES", count);
  Happened happened;
  int failures = 0;
  for (int64_t seed = std::max<int64_t>(only, 0); seed < count && failures < 3; ++seed) {
    const SimulationResult result = simulate(schedule_of(seed));
    ++happened.schedules;
    SimulationCounts& all = happened;
    each_field(all, [&](std::string_view name, int64_t& sum) {
      each_field(static_cast<const SimulationCounts&>(result),
                 [&](std::string_view other, int64_t n) { sum += other == name ? n : 0; });
    });
    if (result.violation.empty() && only < 0) continue;
    failures += !result.violation.empty();
    std::string log;
    for (const std::string& line : result.log) log += line + "\n";
    EXPECT_EQ(result.violation, "") << "schedule " << seed << "\n" << (only >= 0 || failures == 1 ? log : "");
  }
  return happened;
}

Schedule schedule_of(uint64_t seed) {
  return {.seed = seed,
          .vranks = 1 + static_cast<int>(seed % 9),
          .steps = 4 + static_cast<int64_t>(seed / 9 % 8),
          .initial_workers = 1 + static_cast<int>(seed / 5 % 4),
          .min_workers = 1 + static_cast<int>(seed / 7 % 2),
          .faults = static_cast<int>(seed / 3 % 7)};
}

namespace {

void rearrange(Schedule& schedule, Arrangement most) {
  std::mt19937_64 random(schedule.seed);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<uint64_t>(below)); };
  schedule.shards = 2 + draw(3);
  most.tp = std::min(most.tp, schedule.shards);
  schedule.most = most;
  schedule.rearrangements = 1 + draw(6);
  schedule.copies = 1 + draw(most.copies);
  if (schedule.gpus == 0) {
    schedule.zero = draw(most.zero + 1);
    schedule.tp = 1 + draw(most.tp);
    schedule.pp = 1 + draw(most.pp);
  }
  schedule.tied = draw(3) == 0;
  schedule.sums = draw(2) == 0;
  schedule.steps += 6;
  schedule.initial_workers += draw(3);
  schedule.audit_every = draw(4) == 0 ? 2 : 0;
}

}  // namespace

Happened expect_random_schedules_hold(const RandomJobs& jobs) {
  const Happened happened = expect_schedules_hold(jobs.schedules, [&](int64_t seed) {
    Schedule schedule = schedule_of(static_cast<uint64_t>(seed));
    schedule.adaptive = jobs.adaptive;
    schedule.zero = jobs.zero;
    schedule.copies = jobs.copies;
    schedule.tp = jobs.tp;
    schedule.shards = std::max(jobs.tp, 2 + static_cast<int>(seed % 3));
    schedule.pp = jobs.pp;
    schedule.tied = jobs.tied;
    if (jobs.tp * jobs.pp > 1) schedule.initial_workers += static_cast<int>(seed % 4);
    schedule.sums = jobs.zero > 0 && seed % 2 == 0;
    if (jobs.zero > 2) schedule.audit_every = seed % 3 == 0 ? 2 : 0;
    if (jobs.gpus) {
      schedule.gpus = seed % 4 == 0 ? 85 : 100;
      schedule.audit_every = seed % 3 == 0 ? 4 : 0;
      schedule.steps += 8;
      schedule.initial_workers += 1;
    }
    if (jobs.rearranged) rearrange(schedule, jobs.most);
    schedule.table = jobs.table;
    if (jobs.table) schedule.tied = schedule.sums = false;
    return schedule;
  });
  EXPECT_GE(happened.generations, happened.schedules);
  return happened;
}

void expect_parts_happened(const RandomJobs& jobs, const Happened& happened) {
  const int64_t schedules = happened.schedules;
  const bool divided = jobs.tp * jobs.pp > 1;
  EXPECT_GE(happened.moved, jobs.zero > 0 ? schedules / 2 : 0);
  EXPECT_GE(happened.state_lost, jobs.zero > 0 && jobs.copies == 1 ? schedules / 20 : 0);
  // The batch follows the number of replicas, which seldom changes if one may have several members.
  EXPECT_GE(happened.batch_changes, jobs.adaptive ? schedules / (divided ? 200 : 20) : 0);
  if (jobs.tp > 1) {
    EXPECT_GT(happened.exchanged, 20 * schedules);
  }
  if (jobs.pp > 1) {
    EXPECT_GT(happened.passed, 20 * schedules);
  }
}

}  // namespace elinvar
