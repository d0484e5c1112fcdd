#pragma once
// Many simulated jobs, each with a schedule that follows from its number. ELINVAR_SCHEDULES sets the number of
// schedules; ELINVAR_SCHEDULE selects a single one and prints its log.
#include <functional>

#include "tests/elastic/simulator/elastic_simulator.h"

namespace elinvar {

struct Happened : SimulationCounts {
  int64_t schedules = 0;
};

// Expects that no schedule below `count` violates anything. Returns what happened in all of them.
Happened expect_schedules_hold(int64_t count, const std::function<Schedule(int64_t seed)>& schedule_of);

// Kinds of random jobs: joins, drains, kills, stalls, cuts and dying coordinators.
struct RandomJobs {
  bool adaptive = false, gpus = false;
  int zero = 0, copies = 2, tp = 1, pp = 1;
  bool tied = false, table = false;
  // Other arrangements are asked for, and the first one is any, but each entry is at most that of `most`.
  bool rearranged = false;
  Arrangement most = {.zero = kMostZero, .copies = 2, .tp = 3, .pp = 3};
  int64_t schedules = 800;
};
Schedule schedule_of(uint64_t seed);
Happened expect_random_schedules_hold(const RandomJobs& jobs);

// Expects what must have happened in at least a hundred schedules, as far as the jobs have such parts: state moved and
// was lost, the batch changed, and members of model replicas exchanged values and inputs of passes.
void expect_parts_happened(const RandomJobs& jobs, const Happened& happened);

}  // namespace elinvar
