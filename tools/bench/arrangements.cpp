#include "tools/bench/arrangements.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "elastic/step/arrangement.h"
#include "tools/bench/elastic_job.h"
#include "tools/bench/job_configs.h"
#include "tools/bench/job_files.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

constexpr size_t kStepsOfRound = 4;  // of each round, after two that are not measured

// Bytes that the loopback interface has sent.
double loopback_bytes() {
  std::ifstream file("/sys/class/net/lo/statistics/tx_bytes");
  double bytes = 0;
  file >> bytes;
  return bytes;
}

double peak_megabytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1000;
  return 0;
}

struct Measured {
  Arrangement arrangement;
  std::vector<double> steps = {}, megabytes = {}, peaks = {};

  std::string name() const {
    if (arrangement.zero == 0) return "zero=0";
    return fmt::format("zero={}, copies {}", arrangement.zero, arrangement.copies);
  }
};

// Measures one round; returns the number of parameters.
int64_t measure(const std::string& network, int workers, Measured& into) {
  const Folder folder;
  ElasticJob job(folder.path, config_of(network, usual_steps(network), folder.path, 0), workers, 1, /*pinned=*/true,
                 {"--min-workers", std::to_string(workers), "--arrangement",
                  fmt::format("zero={}", into.arrangement.zero), "--copies", std::to_string(into.arrangement.copies)});
  job.await_steps(2);
  const double before = loopback_bytes();
  job.await_steps(kStepsOfRound);
  into.megabytes.push_back(1e-6 * (loopback_bytes() - before) / kStepsOfRound);
  into.steps.push_back(job.step_seconds(kStepsOfRound));
  double peak = 0;
  for (const ElasticJob::Worker& worker : job.workers()) peak = std::max(peak, peak_megabytes(worker.pid));
  into.peaks.push_back(peak);
  return job.parameters();
}

}  // namespace

void run_arrangements(const std::string& network, int workers, int rounds, Report& report) {
  std::vector<Measured> all = {{{.zero = 0}}};
  for (int zero = 1; zero <= kMostZero; ++zero)
    for (const int copies : {1, 2}) all.push_back({{.zero = zero, .copies = copies}});
  int64_t parameters = 0;
  for (int round = 0; round < rounds; ++round)
    for (Measured& each : all) parameters = measure(network, workers, each);

  const double megabytes = 4e-6 * static_cast<double>(parameters);  // of the parameters
  const double slots = network == "gpt2" ? 2 : 1;                   // AdamW, or SGD with momentum
  const auto n = static_cast<double>(workers);
  const auto state = [&](const Arrangement& a) {
    const double share = a.zero == 0 ? 1 : std::min(1.0, a.copies / n);
    return megabytes * (1 + slots * share);
  };
  const double peak_without = median(all[0].peaks), without = median(all[0].steps);
  for (const Measured& each : all) {
    // Subtree roots go to each bucket's owner, sums to its other keepers, parameters to those that do not keep it.
    const double copies = each.arrangement.zero == 0 ? n : std::min<double>(each.arrangement.copies, n);
    report.add(fmt::format("{}, {} workers, {}", network, workers, each.name()), median(each.steps), 0, 0, 0, "",
               {{"slower_percent", rounded(100 * (median(each.steps) / without - 1))},
                {"sent_mb", rounded(median(each.megabytes))},
                {"predicted_sent_mb", rounded(megabytes * 2 * (n - 1))},
                {"of_which_sums_mb", rounded(megabytes * (copies - 1))},
                {"peak_mb", rounded(median(each.peaks))},
                {"less_mb", rounded(peak_without - median(each.peaks))},
                {"state_mb", rounded(state(each.arrangement))},
                {"predicted_less_mb", rounded(state(all[0].arrangement) - state(each.arrangement))}});
  }
}

}  // namespace elinvar::bench
