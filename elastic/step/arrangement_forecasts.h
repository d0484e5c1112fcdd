#pragma once
// How long steps of a job are predicted to take in its arrangements, by its number of workers; and the arrangement to
// which a job changes by itself (`train run --arrangement auto`) when workers have come or gone. A pure function.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elastic/step/arrangement.h"

namespace elinvar {

struct ArrangementForecast {
  Arrangement arrangement;  // simplified (elastic/step/model_replicas.h)
  double seconds = 0;       // of a step
  bool fits = true;         // into the memory of a worker
  bool operator==(const ArrangementForecast&) const = default;
  ELINVAR_FIELDS(arrangement, seconds, fits)
};

struct ArrangementForecasts {
  std::vector<std::vector<ArrangementForecast>> of_workers = {};  // at [n - 1]: of n workers, the best one first
  double change = 0;  // the most seconds that a change takes: a worker gets its whole part of the state from others
  bool operator==(const ArrangementForecasts&) const = default;
  ELINVAR_FIELDS(of_workers, change)
};

struct ArrangementChoice {
  Arrangement arrangement;
  std::string reason;
};

// Returns a better arrangement than `now` for so many workers, if there is one: it fits and `now` does not; or steps
// take at least kLeastGain less of the time, and those that are left gain more than the change takes. Returns nothing
// if there are no forecasts for so many workers, or none that fits.
std::optional<ArrangementChoice> better_arrangement(const ArrangementForecasts& forecasts, int workers,
                                                    const Arrangement& now, int64_t steps_left);

// Half of the deviations of predicted times: a smaller gain may be none.
inline constexpr double kLeastGain = 0.05;

}  // namespace elinvar
