#include "tools/pool/sim/measure.h"

#include <fstream>
#include <numeric>

#include "tensor/base/check.h"
#include "tools/config/config.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/policies/assignment.h"
#include "tools/pool/profiling/job_models.h"
#include "tools/pool/profiling/rescale_costs.h"
#include "tools/pool/sim/rehearsal.h"

namespace elinvar::pool {

namespace fs = std::filesystem;

namespace {

constexpr double kLongest = 120;     // seconds for a change to take effect
constexpr double kLongestEnd = 900;  // seconds for the end of a job with its validation
constexpr int64_t kLeastSteps = 10;
constexpr double kBegins = 5;  // seconds until nearly all workers are there

// Returns the processor's name from /proc/cpuinfo.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "an unnamed processor";
}

Measured entry_of(const JobRecord& job, const std::string& provenance, const RescaleCosts& seen,
                  const Validations& validations, const std::vector<Measurement>& speeds) {
  const RescaleCosts costs = completed(seen, {});
  nlohmann::ordered_json changes, rates = nlohmann::ordered_json::array();
  for (const NamedCost& cost : kCosts) changes[cost.name] = costs.*cost.seconds;
  std::map<std::pair<Allocation, WorkerShape>, double> newest;
  for (const Measurement& m : speeds)
    if (m.workers.size() == 1 && m.rate > 0) newest[{m.workers, m.shape}] = m.rate;
  for (const auto& [at, rate] : newest)
    rates.push_back({{"kind", at.first.begin()->first},
                     {"workers", at.first.begin()->second},
                     {"width", at.second.width},
                     {"recompute", at.second.recompute},
                     {"rate", rate},
                     {"measured", true}});
  return {job.name,
          {{"provenance", provenance},
           {"virtual_ranks", job.virtual_ranks},
           {"batch", job.batch},
           {"costs", std::move(changes)},
           {"validations", {{"every", validations.every}, {"samples", validations.samples}}},
           {"rates", std::move(rates)}}};
}

class Measurer {
 public:
  Measurer(const fs::path& config, const MeasureOptions& options)
      : options_(options),
        rehearsal_({.train = options.train,
                    .slots = options.slots,
                    .threads = options.threads,
                    .policy = [this](const Pool& pool) { return plan(pool); },
                    .speed = [](const JobRecord&) { return std::make_shared<TableSpeed>(1, 1); },
                    .replan = 0}) {
    submission_ = {.config = config, .overrides = options.overrides, .max_workers = options.slots};
    submission_.overrides.push_back("run.epochs=0");
    job_ = submit(1000000000);
  }

  Measured run() {
    goes_to(1);
    int n = 1;
    for (int next = 2; n < options_.slots; next *= 2) goes_to(n = std::min(next, options_.slots));
    for (int i = 1; i < options_.repeat; ++i) {
      goes_to(n / 2);
      goes_to(n);
    }
    for (int i = 0; i < options_.repeat; ++i) one_dies(n);
    goes_to(n / 2);
    for (int i = 1; i < options_.repeat; ++i) {
      stops();
      goes_to(n / 2);
    }
    stops();
    rehearsal_.store().jobs.ask_cancel(job_);
    rehearsal_.until(
        "the end of the first job", [&] { return rehearsal_.store().jobs.find(job_)->over(); }, kLongest);
    for (const int workers : {1, n}) ends(workers);
    return result();
  }

 private:
  Id submit(int64_t steps) {
    Submission submission = submission_;
    submission.overrides.push_back(fmt::format("run.steps={}", steps));
    return rehearsal_.submit(submission);
  }

  // Plans the number of workers that the measurement wants at the moment.
  Plan plan(const Pool& pool) const {
    Grant grant{{}, {}, "is measured"};
    if (wanted_ > 0) grant.allocation[rehearsal_.kind()] = wanted_;
    return assign(pool, std::vector<Grant>(pool.jobs.size(), grant));
  }

  std::vector<ProcessRecord> workers() {
    std::vector<ProcessRecord> found = rehearsal_.store().processes.present();
    std::erase_if(found, [](const ProcessRecord& p) { return p.coordinator; });
    return found;
  }

  void steady(int n) {
    rehearsal_.until(
        fmt::format("{} workers of {}", n, name()),
        [&] {
          const JobRecord job = *rehearsal_.store().jobs.find(job_);
          if (job.over()) fail("{}: {}", job.name, job.reason);
          const RunStatus& status = rehearsal_.status(job_);
          return status.workers == n && std::ssize(workers()) == n && status.measured_seconds >= options_.seconds &&
                 status.measured_steps >= kLeastSteps;
        },
        kLongest + 20 * options_.seconds);
  }

  void goes_to(int n) {
    wanted_ = n;
    steady(n);
  }

  void one_dies(int n) {
    const int64_t generation = rehearsal_.status(job_).generation;
    kill_process(workers().back().handle);
    rehearsal_.until(
        "a death", [&] { return rehearsal_.status(job_).generation > generation; }, kLongest);
    steady(n);
  }

  void stops() {
    wanted_ = 0;
    rehearsal_.until(
        "a stop", [&] { return rehearsal_.store().processes.present().empty(); }, kLongest);
  }

  // Runs a short job to its end, to measure its last validation and its finish.
  void ends(int n) {
    const double step = step_seconds(read_steps(rehearsal_.run_directory(job_))).at(n);
    const JobRecord first = *rehearsal_.store().jobs.find(job_);
    const int64_t least = parse_config(first.config, first.name, first.overrides).schedule.warmup_steps + 1;
    const Id id = submit(std::max(least, kLeastSteps + static_cast<int64_t>((kBegins + options_.seconds) / step)));
    wanted_ = n;
    rehearsal_.until(
        "the end of a job", [&] { return rehearsal_.store().jobs.find(id)->over(); }, kLongestEnd);
    const JobRecord job = *rehearsal_.store().jobs.find(id);
    if (job.state != JobRecord::State::finished) fail("{} is {}: {}", job.name, name_of(job.state), job.reason);
    validations_.push_back(job.validations.samples);
    finishes_.push_back(job.costs.finish);
  }

  static double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  std::string name() { return rehearsal_.store().jobs.find(job_)->name; }

  Measured result() {
    const JobRecord job = *rehearsal_.store().jobs.find(job_);
    const std::vector<StepRecord> steps = read_steps(rehearsal_.run_directory(job_));
    const std::map<int, double> seconds = step_seconds(steps);
    RescaleCosts costs = measured_costs(steps, seconds, rescale_events(rehearsal_.store().processes.of(job_)));
    costs.finish = std::max(1e-3, mean(finishes_));
    const int64_t every = parse_config(job.config, job.name, job.overrides).run.checkpoint_every;
    costs.checkpoint_every =
        // a checkpoint at the end only
        every > 0 ? std::max(1e-3, seconds.rbegin()->second * static_cast<double>(every)) : 1e9;
    std::vector<Measurement> speeds;
    for (const auto& [n, step] : seconds)
      speeds.push_back(
          {.workers = {{rehearsal_.kind(), n}}, .shape = {}, .rate = static_cast<double>(job.batch) / step});
    return entry_of(job,
                    fmt::format("measured by `pool measure`, {} slots of {} threads of {}; {} of each change",
                                options_.slots, options_.threads, processor(), options_.repeat),
                    costs, {job.validations.every, mean(validations_)}, speeds);
  }

  const MeasureOptions options_;
  int wanted_ = 0;
  Rehearsal rehearsal_;
  Submission submission_;
  Id job_ = 0;
  std::vector<double> validations_, finishes_;  // samples, seconds
};

}  // namespace

Measured measure(const fs::path& config, const MeasureOptions& options) {
  check(options.slots >= 2, "changes are measured with two slots or more, got {}", options.slots);
  return Measurer(config, options).run();
}

std::vector<Measured> learned(const Store& store) {
  std::map<std::string, Measured> found;
  JobModels models(store);
  for (const JobRecord& job : store.jobs.all()) {
    const std::vector<Measurement> speeds = store.measurements.of(job.id);
    if (std::none_of(speeds.begin(), speeds.end(), [](const Measurement& m) { return m.rate > 0; })) continue;
    const Overheads overheads = models.overheads(job);
    found[job.name] =
        entry_of(job, fmt::format("what a pool saw of job {}; costs that it did not see are the usual ones", job.id),
                 overheads.costs, overheads.validations, speeds);
  }
  std::vector<Measured> all;
  for (auto& [name, model] : found) all.push_back(std::move(model));
  return all;
}

nlohmann::ordered_json table_of(const std::vector<Measured>& measured) {
  nlohmann::ordered_json models = nlohmann::ordered_json::object();
  for (const Measured& m : measured) {
    check(!models.contains(m.name), "two configurations have the run.name '{}'", m.name);
    models[m.name] = m.model;
  }
  return {{"models", std::move(models)}};
}

}  // namespace elinvar::pool
