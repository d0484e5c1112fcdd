#pragma once
// Learning rates as pure functions of the step. They are computed in double with + - * / alone, so they have the same
// bits on every machine (NUMERICS.md, rule 21); the update rounds them to float32 once.
#include <cstdint>
#include <string>
#include <vector>

namespace elinvar {

struct ScheduleConfig {
  std::string kind = "constant";         // one of schedule_kinds()
  int64_t warmup_steps = 0;              // linear: step s has (s + 1) / warmup_steps of the rate that follows
  double min_ratio = 0.0;                // cosine, linear, step, one_cycle: the least rate, as a fraction of the peak
  std::vector<int64_t> milestones = {};  // step: at each of these steps the rate is multiplied by gamma, ...
  int64_t every = 0;                     // ... or, without milestones, every so many steps
  double gamma = 0.1;                    // step
  double rise = 0.3;                     // one_cycle: the fraction of the steps in which the rate rises, ...
  double initial_ratio = 0.04;           // ... from this fraction of the peak
};

std::vector<std::string> schedule_kinds();

// Returns the rate at `step` (from 0) of a run of `steps`, with peak `lr`. With t = (step - warmup) / (steps - warmup),
// at most 1, and r = min_ratio, the rate after the warm-up is the peak times
//   constant   1
//   cosine     r + (1 - r) * (1 + cos(pi t)) / 2
//   linear     r + (1 - r) * (1 - t)
//   step       max(r, gamma^k), k the milestones at or before the step (of the run), or step / every
//   one_cycle  cosine from initial_ratio to 1 for t in [0, rise], then cosine from 1 to r
// Throws SettingError (tensor/base/setting.h) on an unknown kind or a setting out of its range.
double learning_rate(const ScheduleConfig& config, double lr, int64_t steps, int64_t step);

// Throw what learning_rate() would throw; without the number of steps, only errors that do not depend on it.
void check_schedule(const ScheduleConfig& config);
void check_schedule(const ScheduleConfig& config, int64_t steps);

}  // namespace elinvar
