#include "tools/pool/sim/check.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/config/config.h"
#include "tools/pool/sim/dice.h"
#include "tools/pool/sim/rehearsal.h"
#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {
namespace {

constexpr double kSettle = 0.5;  // seconds between turns of the daemon's loop
constexpr double kReplan = 10;   // seconds between plans, at most
constexpr double kHorizon = 120, kTurn = 10, kPatience = 1800;
constexpr double kMostTimes = 20;  // a run that takes this many times the work of all jobs on one slot has failed

struct Planned {
  std::filesystem::path config;
  TraceJob job;
  int64_t steps = 0;
};

// Makes jobs of half to one and a half times the requested seconds, submitted at short enough intervals to share slots.
std::vector<Planned> jobs_of(const CheckOptions& o, const Table& table) {
  Dice dice(o.seed, "check");
  std::vector<Planned> all;
  double now = 0;
  for (int i = 0; i < o.jobs; ++i) {
    Planned planned{o.configs[static_cast<size_t>(i) % o.configs.size()], {}, 0};
    const Config config = parse_config(read_file(planned.config), planned.config.string(), o.overrides);
    const auto model = table.find(config.run.name);
    check(model != table.end(), "the table has no model '{}', the run.name of {}; `pool measure {}` makes one",
          config.run.name, planned.config.string(), planned.config.string());
    const std::string kind = fmt::format("cpu-{}", o.threads);
    const double alone = model->second.speed->rate({{kind, 1}}, {}).samples;
    check(alone > 0, "the table has no rate of {} with a worker of the kind {}", config.run.name, kind);
    check(config.run.virtual_ranks >= o.slots, "{}: {} virtual ranks are fewer than {} slots", planned.config.string(),
          config.run.virtual_ranks, o.slots);
    planned.steps = std::max<int64_t>(
        1, std::llround(o.seconds * (0.5 + dice.uniform()) * alone / static_cast<double>(config.run.batch_size)));
    planned.job = {.submitted = now,
                   .model = config.run.name,
                   .fixed = o.slots,
                   .min = 1,
                   .max = o.slots,
                   .samples = static_cast<double>(planned.steps * config.run.batch_size),
                   .kinds = {},
                   .priority = 0,
                   .deadline = kNever};
    now += dice.exponential(0.8 * o.seconds / o.slots);
    all.push_back(std::move(planned));
  }
  return all;
}

// Returns when each job ended, in seconds since the first was submitted.
std::vector<double> live(const CheckOptions& o, const std::vector<Planned>& jobs, const Table& table,
                         const NamedPolicy& policy) {
  const auto model = [&](const JobRecord& job) -> const Model& { return table.at(job.name); };
  Rehearsal rehearsal({.train = o.train,
                       .slots = o.slots,
                       .threads = o.threads,
                       .policy = policy.plan,
                       .speed = [&](const JobRecord& job) { return model(job).speed; },
                       .overheads = [&](const JobRecord& job) -> Overheads {
                         return {model(job).costs, model(job).validations};
                       },
                       .replan = kReplan,
                       .patience = kPatience,
                       .turn = kTurn,
                       .horizon = kHorizon});
  double work = 0;
  for (const Planned& planned : jobs)
    work += planned.job.samples / table.at(planned.job.model).speed->rate({{rehearsal.kind(), 1}}, {}).samples;
  const double begin = wall_clock();
  std::vector<Id> ids;
  rehearsal.until(
      "all jobs",
      [&] {
        while (ids.size() < jobs.size() && wall_clock() - begin >= jobs[ids.size()].job.submitted) {
          const Planned& planned = jobs[ids.size()];
          Submission submission{.config = planned.config, .overrides = o.overrides};
          submission.overrides.push_back("run.epochs=0");
          submission.overrides.push_back(fmt::format("run.steps={}", planned.steps));
          submission.max_workers = o.slots;
          ids.push_back(rehearsal.submit(submission));
        }
        return ids.size() == jobs.size() && rehearsal.store().jobs.open().empty();
      },
      60 + kMostTimes * work);
  std::vector<double> ended;
  for (const Id id : ids) {
    const JobRecord job = *rehearsal.store().jobs.find(id);
    if (job.state != JobRecord::State::finished)
      fail("job {}, {}, is {}: {}", id, job.name, name_of(job.state), job.reason);
    ended.push_back(job.ended - begin);
  }
  return ended;
}

// Compares the simulated value with what `value` returns for each run.
template <class Value>
Compared compared(std::string what, std::string unit, const std::vector<std::vector<double>>& runs, double simulated,
                  Value value) {
  std::vector<double> values;
  for (const std::vector<double>& run : runs) values.push_back(value(run));
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {std::move(what), std::move(unit), (values[n / 2] + values[(n - 1) / 2]) / 2,
          simulated,       values[0],       values[n - 1]};
}

}  // namespace

double CheckResult::worst() const {
  double worst = 0;
  for (const Compared& sum : sums) worst = std::max(worst, std::abs(sum.error()));
  return worst;
}

CheckResult check_simulation(const CheckOptions& o, const Table& table, const NamedPolicy& policy) {
  check(!o.configs.empty() && o.jobs > 0 && o.repeat > 0, "there are no jobs to compare");
  const std::vector<Planned> jobs = jobs_of(o, table);
  Trace trace;
  for (const Planned& planned : jobs) trace.jobs.push_back(planned.job);
  trace.hosts.push_back({.host = "localhost", .kind = fmt::format("cpu-{}", o.threads), .slots = o.slots});
  const Outcome simulated = simulate(trace, table, policy.plan,
                                     {.horizon = kHorizon,
                                      .patience = kPatience,
                                      .turn = kTurn,
                                      .settle = kSettle,
                                      .period = kReplan,
                                      .seed = o.seed});
  std::vector<std::vector<double>> ended;  // by run
  for (int i = 0; i < o.repeat; ++i) ended.push_back(live(o, jobs, table, policy));

  CheckResult result;
  double completion = 0, makespan = 0, work = 0;  // seconds; work: slot-seconds
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobOutcome& outcome = simulated.jobs[i];
    const double took = outcome.ended - outcome.submitted;
    result.jobs.push_back(compared(fmt::format("{} {}, {} steps", i + 1, outcome.model, jobs[i].steps), "s", ended,
                                   took, [&](const auto& run) { return run[i] - outcome.submitted; }));
    completion += took / static_cast<double>(jobs.size());
    makespan = std::max(makespan, outcome.ended);
    work += jobs[i].job.samples / table.at(outcome.model).speed->rate({{trace.hosts[0].kind, 1}}, {}).samples;
  }
  const auto last = [](const auto& run) { return *std::max_element(run.begin(), run.end()); };
  const auto mean = [&](const auto& run) {
    double sum = 0;
    for (size_t i = 0; i < jobs.size(); ++i) sum += run[i] - simulated.jobs[i].submitted;
    return sum / static_cast<double>(jobs.size());
  };
  result.sums = {
      compared("completion, mean", "s", ended, completion, mean), compared("makespan", "s", ended, makespan, last),
      compared("throughput", "references", ended, work / makespan, [&](const auto& run) { return work / last(run); })};
  return result;
}

std::string text_of(const CheckResult& result) {
  std::string text = fmt::format("{:<32} {:>10} {:>19} {:>10} {:>8}\n", "from submission to the end", "live s", "",
                                 "simulated", "error");
  const auto line = [&](const Compared& c, const std::string& what, int digits) {
    const std::string range =
        c.most > c.least ? fmt::format("{:.{}f} to {:.{}f}", c.least, digits, c.most, digits) : "";
    text += fmt::format("{:<32} {:>10.{}f} {:>19} {:>10.{}f} {:>+7.1f} %\n", what, c.live, digits, range, c.simulated,
                        digits, 100 * c.error());
  };
  for (const Compared& c : result.jobs) line(c, c.what, 1);
  text += "\n";
  for (const Compared& c : result.sums) line(c, fmt::format("{} [{}]", c.what, c.unit), c.live < 10 ? 2 : 1);
  return text;
}

nlohmann::ordered_json json_of(const CheckResult& result) {
  const auto rows = [](const std::vector<Compared>& all) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Compared& c : all)
      list.push_back({{"what", c.what},
                      {"unit", c.unit},
                      {"live", c.live},
                      {"least", c.least},
                      {"most", c.most},
                      {"simulated", c.simulated},
                      {"error", c.error()}});
    return list;
  };
  return {{"jobs", rows(result.jobs)}, {"sums", rows(result.sums)}, {"worst", result.worst()}};
}

}  // namespace elinvar::pool
