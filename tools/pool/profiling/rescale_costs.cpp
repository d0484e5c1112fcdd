#include "tools/pool/profiling/rescale_costs.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "elastic/ledger/utc_time.h"
#include "tensor/base/check.h"

namespace elinvar::pool {
namespace {

constexpr int kWarmUpSteps = 2;  // steps of a generation
constexpr double kLeast = 1e-3;  // seconds: nothing is free
constexpr double kNoticed = 1;   // seconds: the longest delay until a death is recorded

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return std::max(kLeast, values[values.size() / 2]);
}

}  // namespace

std::vector<StepRecord> read_steps(const std::filesystem::path& run_directory) {
  std::ifstream in(run_directory / "metrics.jsonl");
  std::vector<StepRecord> steps;
  bool validates = false;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("validation_loss")) validates = true;
    if (!json.is_object() || !json.contains("generation") || !json.contains("step")) continue;
    if (const std::optional<double> time = seconds_of_utc(json.value("time", "")))
      steps.push_back(
          {*time, json.value("workers", 0), json["generation"].get<int64_t>(), std::exchange(validates, false)});
  }
  return steps;
}

std::map<int, double> step_seconds(std::span<const StepRecord> steps) {
  struct Sum {
    double seconds = 0, count = 0;
  };
  std::map<int, Sum> sums;
  int of_generation = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool fresh = i == 0 || !steps[i].goes_on(steps[i - 1]);
    of_generation = fresh ? 0 : of_generation + 1;
    if (of_generation <= kWarmUpSteps || steps[i].validates) continue;
    Sum& sum = sums[steps[i].workers];
    sum.seconds += std::max(0.0, steps[i].time - steps[i - 1].time);
    sum.count += 1;
  }
  std::map<int, double> seconds;
  for (const auto& [workers, sum] : sums)
    if (sum.seconds > 0) seconds[workers] = sum.seconds / sum.count;
  return seconds;
}

std::vector<RescaleEvent> rescale_events(std::span<const ProcessRecord> processes) {
  std::vector<RescaleEvent> changes;
  std::map<double, double> stops;  // when all processes were told to stop, and when the last one had
  for (const ProcessRecord& p : processes)
    if (p.coordinator && p.leaving > 0 && p.ended > 0 && p.code == 0) stops[p.leaving] = p.ended;
  for (const ProcessRecord& p : processes) {
    const auto stop = stops.find(p.leaving);
    if (stop != stops.end()) stop->second = std::max(stop->second, p.ended);
    if (p.coordinator) {
      changes.push_back({RescaleEvent::kStart, p.started});
      continue;
    }
    if (p.registered) changes.push_back({RescaleEvent::kJoin, p.started});
    if (stop != stops.end() || p.ended == 0 || !p.registered) continue;
    if (p.leaving > 0 && p.code == 0) changes.push_back({RescaleEvent::kLeave, p.leaving, p.ended});
    if (p.leaving == 0 && p.code != 0) changes.push_back({RescaleEvent::kDeath, p.ended - kNoticed});
  }
  for (const auto& [at, free] : stops) changes.push_back({RescaleEvent::kStop, at, free});
  std::stable_sort(changes.begin(), changes.end(),
                   [](const RescaleEvent& a, const RescaleEvent& b) { return a.at < b.at; });
  return changes;
}

RescaleCosts measured_costs(std::span<const StepRecord> steps, const std::map<int, double>& usual,
                            std::span<const RescaleEvent> changes) {
  std::map<RescaleEvent::What, std::vector<double>> took, stalled;
  double start = -1;  // of the most recent start
  for (const RescaleEvent& change : changes) {
    if (change.what == RescaleEvent::kStart) start = change.at;
    if (change.what == RescaleEvent::kLeave || change.what == RescaleEvent::kStop)
      took[change.what].push_back(change.free - change.at);
    if (change.what == RescaleEvent::kStop) continue;
    const auto next = std::upper_bound(steps.begin(), steps.end(), change.at,
                                       [](double t, const StepRecord& s) { return t < s.time; });
    // Joins before a start's first step belong to the start.
    const bool runs = next != steps.begin() && std::prev(next)->time > start;
    if (!runs && change.what != RescaleEvent::kStart) continue;
    const int had = runs ? std::prev(next)->workers : 0;
    const auto first = std::find_if(next, steps.end(), [&](const StepRecord& s) {
      return change.what == RescaleEvent::kStart ||
             (change.what == RescaleEvent::kJoin ? s.workers > had : s.workers < had);
    });
    if (first == steps.end() || !usual.contains(first->workers)) continue;
    const double step = usual.at(first->workers);
    if (change.what == RescaleEvent::kStart || change.what == RescaleEvent::kJoin)
      took[change.what].push_back(first->time - step - change.at);
    if (change.what != RescaleEvent::kStart)
      stalled[change.what].push_back(first->time - std::prev(first)->time - step);
  }
  RescaleCosts costs = kUnmeasured;
  costs.start = median(took[RescaleEvent::kStart]);
  costs.join = median(took[RescaleEvent::kJoin]);
  costs.join_stall = median(stalled[RescaleEvent::kJoin]);
  costs.leave = median(took[RescaleEvent::kLeave]);
  costs.leave_stall = median(stalled[RescaleEvent::kLeave]);
  costs.death_stall = median(stalled[RescaleEvent::kDeath]);
  costs.stop = median(took[RescaleEvent::kStop]);
  return costs;
}

std::string text_of(const RescaleCosts& seen) {
  std::string text;
  const auto add = [&](const char* what, double seconds, double others) {
    if (seconds <= 0 && others <= 0) return;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", what);
    if (seconds > 0) text += fmt::format(" takes {:.2g} s", seconds);
    if (others > 0)
      text += seconds > 0 ? fmt::format(" (others wait for {:.2g} s)", others)
                          : fmt::format(" holds others up for {:.2g} s", others);
  };
  add("a start", seen.start, 0);
  add("a join", seen.join, seen.join_stall);
  add("a leave", seen.leave, seen.leave_stall);
  add("a death", 0, seen.death_stall);
  add("a stop", seen.stop, 0);
  add("an end", seen.finish, 0);
  return text;
}

}  // namespace elinvar::pool
