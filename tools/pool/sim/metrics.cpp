#include "tools/pool/sim/metrics.h"

#include <algorithm>
#include <cmath>

namespace elinvar::pool {
namespace {

double part(double of, double whole) { return whole > 0 ? of / whole : 0; }

// Seconds from submission to the end; for jobs that have not ended, to now.
std::vector<double> completions(const Outcome& o) {
  std::vector<double> all;
  for (const JobOutcome& job : o.jobs)
    if (job.submitted < o.seconds) all.push_back(std::min(job.ended, o.seconds) - job.submitted);
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<double> slowdowns(const Outcome& o) {
  std::vector<double> all;
  for (const JobOutcome& job : o.jobs)
    if (job.submitted < o.seconds)
      all.push_back(std::max(1e-3, (std::min(job.ended, o.seconds) - job.submitted) / std::max(1.0, job.alone)));
  std::sort(all.begin(), all.end());
  return all;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return part(sum, static_cast<double>(values.size()));
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted.empty() ? 0 : sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * sorted.size()))];
}

double ended(const Outcome& o) {
  return 100 * part(std::count_if(o.jobs.begin(), o.jobs.end(), [](const auto& j) { return j.ended < kNever; }),
                    o.jobs.size());
}

double queueing(const Outcome& o) {
  std::vector<double> all;
  for (const JobOutcome& job : o.jobs)
    if (job.submitted < o.seconds) all.push_back(std::min(job.started, o.seconds) - job.submitted);
  return mean(all);
}

double makespan(const Outcome& o) {
  double last = 0;
  for (const JobOutcome& job : o.jobs) last = std::max(last, std::min(job.ended, o.seconds));
  return last;
}

// Jain's index of each job's speed relative to `alone`: 1 if all jobs were served alike, 1/n at worst.
double fairness(const Outcome& o) {
  double sum = 0, squares = 0, n = 0;
  for (const double slowdown : slowdowns(o)) sum += 1 / slowdown, squares += 1 / slowdown / slowdown, n += 1;
  return part(sum * sum, n * squares);
}

}  // namespace

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all = {
      {"completion, mean", "s", Metric::kLess, [](const Outcome& o) { return mean(completions(o)); }},
      {"completion, median", "s", Metric::kLess, [](const Outcome& o) { return quantile(completions(o), 0.5); }},
      {"completion, 95 %", "s", Metric::kLess, [](const Outcome& o) { return quantile(completions(o), 0.95); }},
      {"queueing, mean", "s", Metric::kLess, queueing},
      {"makespan", "s", Metric::kLess, makespan},
      {"throughput", "references", Metric::kMore, [](const Outcome& o) { return part(o.work, o.seconds); }},
      {"goodput", "% of slots", Metric::kMore, [](const Outcome& o) { return 100 * part(o.work, o.available); }},
      {"utilisation", "% of slots", Metric::kNeither, [](const Outcome& o) { return 100 * part(o.held, o.available); }},
      {"standing still", "% of held", Metric::kNeither,
       [](const Outcome& o) { return 100 * part(o.standing, o.held); }},
      {"done and lost", "% of work", Metric::kNeither, [](const Outcome& o) { return 100 * part(o.undone, o.work); }},
      {"ended", "% of jobs", Metric::kNeither, ended},
      {"slow-down, 95 %", "times", Metric::kLess, [](const Outcome& o) { return quantile(slowdowns(o), 0.95); }},
      {"fairness", "Jain", Metric::kMore, fairness},
      {"changes a job", "", Metric::kNeither, [](const Outcome& o) { return part(o.changes, o.jobs.size()); }},
      {"a plan takes", "ms", Metric::kNeither, [](const Outcome& o) { return 1e3 * part(o.planning, o.plans); }},
      {"slowest plan", "ms", Metric::kNeither, [](const Outcome& o) { return 1e3 * o.slowest_plan; }},
      {"largest gap", "%", Metric::kNeither, [](const Outcome& o) { return 100 * o.worst_gap; }},
      {"error of sure predictions", "%", Metric::kNeither, [](const Outcome& o) { return 100 * o.sure_error; }},
  };
  return all;
}

Spread spread_of(const std::vector<double>& values) {
  Spread spread{mean(values), 0};
  for (const double v : values) spread.deviation += (v - spread.mean) * (v - spread.mean);
  spread.deviation = values.size() > 1 ? std::sqrt(spread.deviation / static_cast<double>(values.size() - 1)) : 0;
  return spread;
}

Spread times_better(const std::vector<double>& ours, const std::vector<double>& baseline, bool more_is_better) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), baseline.size()); ++i)
    ratios.push_back(more_is_better ? part(ours[i], baseline[i]) : part(baseline[i], ours[i]));
  return spread_of(ratios);
}

}  // namespace elinvar::pool
