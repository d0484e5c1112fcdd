#include "tools/pool/sim/observe.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/check.h"
#include "tools/pool/sight.h"

namespace elinvar::pool {
namespace {

constexpr int kWarmUp = 2;       // steps of a generation
constexpr double kLeast = 1e-3;  // seconds: nothing is free

double median(std::vector<double> values, double if_none) {
  if (values.empty()) return if_none;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return std::max(kLeast, values[values.size() / 2]);
}

}  // namespace

std::vector<StepSeen> steps_seen(const std::filesystem::path& run_directory) {
  std::ifstream in(run_directory / "metrics.jsonl");
  std::vector<StepSeen> steps;
  bool validates = false;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("validation_loss")) validates = true;
    if (!json.is_object() || !json.contains("generation") || !json.contains("step")) continue;
    const double time = seconds_of(json.value("time", ""));
    if (time > 0)
      steps.push_back(
          {time, json.value("workers", 0), json["generation"].get<int64_t>(), std::exchange(validates, false)});
  }
  return steps;
}

std::map<int, double> step_seconds(std::span<const StepSeen> steps) {
  struct Sum {
    double seconds = 0, count = 0;
  };
  std::map<int, Sum> sums;
  int of_generation = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool fresh = i == 0 || steps[i].generation != steps[i - 1].generation;
    of_generation = fresh ? 0 : of_generation + 1;
    if (of_generation <= kWarmUp || steps[i].validates) continue;
    Sum& sum = sums[steps[i].workers];
    sum.seconds += std::max(0.0, steps[i].time - steps[i - 1].time);
    sum.count += 1;
  }
  std::map<int, double> seconds;
  for (const auto& [workers, sum] : sums)
    if (sum.seconds > 0) seconds[workers] = sum.seconds / sum.count;
  return seconds;
}

RescaleCosts costs_seen(std::span<const StepSeen> steps, std::span<const ChangeSeen> changes) {
  const std::map<int, double> usual = step_seconds(steps);
  std::map<ChangeSeen::What, std::vector<double>> took, stood;
  for (const ChangeSeen& change : changes) {
    if (change.what == ChangeSeen::kLeave || change.what == ChangeSeen::kStop)
      took[change.what].push_back(change.free - change.at);
    if (change.what == ChangeSeen::kStop) continue;
    const auto next =
        std::upper_bound(steps.begin(), steps.end(), change.at, [](double t, const StepSeen& s) { return t < s.time; });
    const int had = next == steps.begin() ? 0 : std::prev(next)->workers;
    const auto first = std::find_if(next, steps.end(), [&](const StepSeen& s) {
      return change.what == ChangeSeen::kStart ||
             (change.what == ChangeSeen::kJoin ? s.workers > had : s.workers < had);
    });
    if (first == steps.end() || !usual.contains(first->workers)) continue;
    const double step = usual.at(first->workers);
    if (change.what == ChangeSeen::kStart || change.what == ChangeSeen::kJoin)
      took[change.what].push_back(first->time - step - change.at);
    if (change.what != ChangeSeen::kStart && first != steps.begin())
      stood[change.what].push_back(first->time - std::prev(first)->time - step);
  }
  RescaleCosts costs;
  costs.start = median(took[ChangeSeen::kStart], costs.start);
  costs.join = median(took[ChangeSeen::kJoin], costs.join);
  costs.join_stall = median(stood[ChangeSeen::kJoin], costs.join_stall);
  costs.leave = median(took[ChangeSeen::kLeave], costs.leave);
  costs.leave_stall = median(stood[ChangeSeen::kLeave], costs.leave_stall);
  costs.death_stall = median(stood[ChangeSeen::kDeath], costs.death_stall);
  costs.stop = median(took[ChangeSeen::kStop], costs.stop);
  return costs;
}

}  // namespace elinvar::pool
