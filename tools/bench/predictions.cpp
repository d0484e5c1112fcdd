#include "tools/bench/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/bench/arrangement_job.h"
#include "tools/bench/elastic_job.h"
#include "tools/bench/job_files.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr size_t kSteps = 3;  // of a job that are measured

// One micro-batch of a virtual rank is as large as GPT-2's context here, and a batch of images.
Sizes sizes_of(const std::string& network) {
  if (network == "gpt2") return {.batch = 4, .vranks = 4, .width = 256};
  Sizes sizes = usual_steps(network);
  sizes.batch = 2 * sizes.batch;
  sizes.vranks = 4;
  return sizes;
}

std::vector<std::string> options_of(const std::string& network, int workers) {
  if (network != "gpt2") return {};
  return {"--set", fmt::format("model.virtual_shards={}", workers)};
}

// Returns what a dry run of these workers says.
Ordered dry_run(const std::string& network, int workers, int threads, const std::vector<std::string>& more) {
  const Folder folder;
  const std::filesystem::path config = folder.path + "/job.toml", out = folder.path + "/out";
  replace_file(config, config_of(network, sizes_of(network), folder.path, 0));
  std::vector<std::string> words = {
      "run",       config.string(),         "--dry-run", "--json", "--workers", std::to_string(workers),
      "--threads", std::to_string(threads), "--memory",  "999TB",  "--device",  "cpu"};
  words.insert(words.end(), more.begin(), more.end());
  if (Process(words, out).wait() != 0) fail("train run --dry-run: {}", read_file(out));
  return Ordered::parse(read_file(out));
}

bool is_for(const Ordered& estimate, const Arrangement& a) {
  return estimate.at("zero") == a.zero && estimate.at("tp") == a.tp && estimate.at("pp") == a.pp &&
         (a.zero == 0 || estimate.at("copies") == a.copies);
}

const Ordered& estimate_of(const Ordered& dry_run, const Arrangement& arrangement) {
  for (const Ordered& e : dry_run.at("arrangements"))
    if (is_for(e, arrangement)) return e;
  fail("the dry run has no estimate of a measured arrangement");
}

struct Compared {
  ArrangementJob job;
  const Ordered* dry_run;
};

// The arrangement of the first estimate with so many copies, as `--arrangement auto --copies N` takes it.
Arrangement chosen(const Ordered& dry_run, int copies) {
  for (const Ordered& e : dry_run.at("arrangements"))
    if (e.at("zero") == 0 || e.at("copies") == copies)
      return {.zero = e.at("zero"), .copies = copies, .tp = e.at("tp"), .pp = e.at("pp")};
  fail("the dry run has no arrangement of {} copies", copies);
}

bool same(const Arrangement& a, const Arrangement& b) {
  return a.zero == b.zero && a.tp == b.tp && a.pp == b.pp && (a.zero == 0 || a.copies == b.copies);
}

std::string name_of(const Arrangement& a, int workers) {
  std::string name = fmt::format("dp={}", workers / a.replica());
  if (a.tp > 1) name += fmt::format(",tp={}", a.tp);
  if (a.pp > 1) name += fmt::format(",pp={}", a.pp);
  if (a.zero > 0) name += fmt::format(",zero={}, copies {}", a.zero, a.copies);
  return name;
}

std::vector<Arrangement> arrangements_of(const std::string& network, int workers) {
  std::vector<Arrangement> all = {{}};
  for (int zero = 1; zero <= kMostZero; ++zero)
    for (const int copies : {1, 2}) all.push_back({.zero = zero, .copies = copies});
  for (const int zero : {0, 1, 3}) all.push_back({.zero = zero, .copies = 1, .pp = workers});
  if (network == "gpt2")
    for (const int zero : {0, 1}) all.push_back({.zero = zero, .copies = 1, .tp = workers});
  return all;
}

double percent(double predicted, double measured) { return 100 * (predicted / measured - 1); }

}  // namespace

void compare_predictions(const std::string& network, int workers, int rounds, Report& report) {
  const std::vector<std::string> more = options_of(network, workers);
  const Sizes sizes = sizes_of(network);
  const Ordered alone = dry_run(network, 1, 1, more), wide = dry_run(network, 1, workers, more),
                several = dry_run(network, workers, 1, more);
  fmt::print("links of {}: {:.1f} us a message, {:.2f} GB/s each way, {:.3f} s of the passes' time a GB\n", network,
             1e6 * several.at("latency").get<double>(), 1e-9 * several.at("bandwidth").get<double>(),
             1e9 * several.at("processor").get<double>());
  std::vector<Compared> all = {
      {{.name = "one worker", .sizes = sizes, .more = more}, &alone},
      {{.name = fmt::format("one worker of {} threads", workers), .threads = workers, .sizes = sizes, .more = more},
       &wide}};
  std::vector<Arrangement> arrangements = arrangements_of(network, workers);
  for (const int copies : {1, 2}) {
    const Arrangement taken = chosen(several, copies);
    if (std::ranges::none_of(arrangements, [&](const Arrangement& a) { return same(a, taken); }))
      arrangements.push_back(taken);
  }
  for (const Arrangement& a : arrangements)
    all.push_back(
        {{.name = name_of(a, workers), .arrangement = a, .workers = workers, .sizes = sizes, .more = more}, &several});
  for (int round = 0; round < rounds; ++round)
    for (Compared& each : all) each.job.measure(network, kSteps);

  std::vector<double> errors, of_memory;
  for (const auto& [job, dry_run] : all) {
    const Ordered& estimate = estimate_of(*dry_run, job.arrangement);
    const double step = median(job.steps), peak = *std::ranges::max_element(job.peaks),
                 predicted = estimate.at("seconds"), predicted_peak = 1e-6 * estimate.at("peak_bytes").get<double>();
    errors.push_back(std::abs(percent(predicted, step)));
    of_memory.push_back(percent(predicted_peak, peak));
    Ordered parts = {{"predicted_ms", rounded(1e3 * predicted)}, {"error_percent", rounded(percent(predicted, step))}};
    for (const char* part : {"computing", "within", "bubble", "exchange", "update"})
      parts[fmt::format("{}_ms", part)] = rounded(1e3 * estimate.at(part).get<double>());
    parts.update({{"peak_mb", rounded(peak)},
                  {"predicted_peak_mb", rounded(predicted_peak)},
                  {"memory_error_percent", rounded(of_memory.back())},
                  {"sent_mb", rounded(median(job.megabytes))}});
    report.add(fmt::format("{}, {}", network, job.name), step, 0, 0, 0, "", parts);
  }
  const auto [least, most] = std::ranges::minmax(of_memory);
  fmt::print("{}: {} arrangements, median error {:.1f} % of a step's time; memory from {:+.1f} to {:+.1f} %\n", network,
             all.size(), median(errors), least, most);
  for (const int copies : {1, 2}) {
    const Arrangement taken = chosen(several, copies);
    double best = 0, its = 0;
    std::string name;
    for (const auto& [job, dry_run] : all) {
      if (dry_run != &several || (job.arrangement.zero > 0 && job.arrangement.copies != copies)) continue;
      const double step = median(job.steps);
      if (same(job.arrangement, taken)) its = step;
      if (best > 0 && step >= best) continue;
      best = step;
      name = job.name;
    }
    fmt::print("{}, copies {}: auto takes {}, {:.1f} % slower than the best measured, {}: {} 5 %\n", network, copies,
               name_of(taken, workers), percent(its, best), name, its <= 1.05 * best ? "within" : "NOT within");
  }
}

}  // namespace elinvar::bench
