#include "elastic/step/arrangement_forecasts.h"

#include <fmt/format.h>

#include <algorithm>

#include "elastic/step/model_replicas.h"

namespace elinvar {

std::optional<ArrangementChoice> better_arrangement(const ArrangementForecasts& forecasts, int workers,
                                                    const Arrangement& now, int64_t steps_left) {
  if (workers < 1 || static_cast<size_t>(workers) > forecasts.of_workers.size()) return std::nullopt;
  const std::vector<ArrangementForecast>& all = forecasts.of_workers[static_cast<size_t>(workers - 1)];
  const Arrangement simple = simplified(now, workers);
  const auto current = std::ranges::find(all, simple, &ArrangementForecast::arrangement);
  if (all.empty() || !all.front().fits) return std::nullopt;
  const ArrangementForecast& best = all.front();
  if (best.arrangement == simple) return std::nullopt;
  const std::string with = fmt::format("with {} worker{}", workers, workers == 1 ? "" : "s");
  if (current == all.end())
    return ArrangementChoice{best.arrangement, fmt::format("predicted to be the fastest {}", with)};
  if (!current->fits)
    return ArrangementChoice{best.arrangement,
                             fmt::format("{}, {} does not fit into their memory", with, to_string(now))};
  const double gain = current->seconds - best.seconds;
  if (gain < kLeastGain * current->seconds || gain * static_cast<double>(steps_left) <= forecasts.change)
    return std::nullopt;
  return ArrangementChoice{best.arrangement, fmt::format("a step {} is predicted to take {:.0f} % of the time", with,
                                                         100 * best.seconds / current->seconds)};
}

}  // namespace elinvar
