#include "nn/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {
namespace {

// Returns (1 + cos(pi t)) / 2 for t in [0, 1] by Taylor series on [0, pi/4], to about 1e-16. The library's cos() is not
// used because its last bit differs between libraries.
double half_cosine(double t) {
  constexpr double kPi = 3.14159265358979323846;
  const bool mirrored = t > 0.5;
  const double u = mirrored ? 1.0 - t : t;  // cos(pi (1 - t)) = -cos(pi t)
  const bool by_sine = u > 0.25;            // cos(pi u) = sin(pi (1/2 - u))
  const double x = kPi * (by_sine ? 0.5 - u : u), x2 = x * x;
  double term = by_sine ? x : 1.0, sum = term;
  for (int k = by_sine ? 2 : 1; k < 20; k += 2) {
    term *= -x2 / static_cast<double>(k * (k + 1));
    sum += term;
  }
  return (1.0 + (mirrored ? -sum : sum)) / 2.0;
}

struct Position {
  double t;      // fraction of the steps after the warm-up, in [0, 1]
  int64_t step;  // counted from the start of the run
};

double constant_factor(const ScheduleConfig&, Position) { return 1.0; }

double cosine_factor(const ScheduleConfig& c, Position at) {
  return c.min_ratio + (1.0 - c.min_ratio) * half_cosine(at.t);
}

double linear_factor(const ScheduleConfig& c, Position at) { return c.min_ratio + (1.0 - c.min_ratio) * (1.0 - at.t); }

double step_factor(const ScheduleConfig& c, Position at) {
  const auto passed = [&](int64_t milestone) { return milestone <= at.step; };
  int64_t k =
      c.milestones.empty() ? at.step / c.every : std::count_if(c.milestones.begin(), c.milestones.end(), passed);
  double factor = 1.0;
  for (; k > 0 && factor > c.min_ratio; --k) factor *= c.gamma;
  return std::max(c.min_ratio, factor);
}

double one_cycle_factor(const ScheduleConfig& c, Position at) {
  if (at.t < c.rise) return 1.0 + (c.initial_ratio - 1.0) * half_cosine(at.t / c.rise);
  return c.min_ratio + (1.0 - c.min_ratio) * half_cosine((at.t - c.rise) / (1.0 - c.rise));
}

struct ScheduleKind {
  std::string_view name;
  double (*factor)(const ScheduleConfig&, Position);
};

constexpr std::array kKinds{ScheduleKind{"constant", constant_factor}, ScheduleKind{"cosine", cosine_factor},
                            ScheduleKind{"linear", linear_factor}, ScheduleKind{"step", step_factor},
                            ScheduleKind{"one_cycle", one_cycle_factor}};

void check_milestones(const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    check_setting(steps[i] >= 0, "schedule.milestones", "must be steps, which count from 0, got {}", steps[i]);
    check_setting(i == 0 || steps[i] > steps[i - 1], "schedule.milestones",
                  "must be in ascending order, got {} after {}", steps[i], steps[i > 0 ? i - 1 : 0]);
  }
}

const ScheduleKind& checked_kind(const ScheduleConfig& c) {
  const auto found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const ScheduleKind& kind) { return kind.name == c.kind; });
  check_setting(found != kKinds.end(), "schedule.kind", "does not know '{}'{}", c.kind,
                spelling_hint(c.kind, schedule_kinds()));
  check_setting(c.warmup_steps >= 0, "schedule.warmup_steps", "must be at least 0, got {}", c.warmup_steps);
  check_setting(c.min_ratio >= 0.0 && c.min_ratio <= 1.0, "schedule.min_ratio", "must be in [0, 1], got {}",
                c.min_ratio);
  check_milestones(c.milestones);
  check_setting(c.every >= 0, "schedule.every", "must be at least 0, got {}", c.every);
  check_setting(c.gamma > 0.0 && c.gamma <= 1.0, "schedule.gamma", "must be in (0, 1], got {}", c.gamma);
  check_setting(c.rise >= 0.0 && c.rise < 1.0, "schedule.rise", "must be in [0, 1), got {}", c.rise);
  check_setting(c.initial_ratio >= 0.0 && c.initial_ratio <= 1.0, "schedule.initial_ratio", "must be in [0, 1], got {}",
                c.initial_ratio);
  check_setting(c.kind != "step" || !c.milestones.empty() || c.every > 0, "schedule.milestones",
                "or a positive schedule.every is needed for the kind \"step\"");
  return *found;
}

const ScheduleKind& checked_kind(const ScheduleConfig& c, int64_t steps) {
  check(steps > 0, "[schedule] at least one step expected, got {}", steps);
  const ScheduleKind& kind = checked_kind(c);
  check_setting(c.warmup_steps <= steps, "schedule.warmup_steps", "= {} are more than the {} steps of the run",
                c.warmup_steps, steps);
  return kind;
}

}  // namespace

std::vector<std::string> schedule_kinds() {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

void check_schedule(const ScheduleConfig& config) { checked_kind(config); }
void check_schedule(const ScheduleConfig& config, int64_t steps) { checked_kind(config, steps); }

double learning_rate(const ScheduleConfig& c, double lr, int64_t steps, int64_t step) {
  const ScheduleKind& kind = checked_kind(c, steps);
  check(step >= 0, "[schedule] steps count from 0, got {}", step);
  if (step < c.warmup_steps) {
    const double part = static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps);
    return lr * kind.factor(c, {0.0, c.warmup_steps}) * part;
  }
  const int64_t after = steps - c.warmup_steps;
  const double t =
      after > 0 ? std::min(1.0, static_cast<double>(step - c.warmup_steps) / static_cast<double>(after)) : 1.0;
  return lr * kind.factor(c, {t, step});
}

}  // namespace elinvar
