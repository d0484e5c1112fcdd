// `pool sim`: experiments with policies in simulated time.
#include <CLI/CLI.hpp>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tools/cli/output_file.h"
#include "tools/pool/commands/commands.h"
#include "tools/pool/sim/chart.h"
#include "tools/pool/sim/check.h"
#include "tools/pool/sim/measure.h"
#include "tools/pool/sim/metrics.h"
#include "tools/pool/sim/scenarios.h"

extern const char* const kPoolSpeeds;  // sim/speeds.json

namespace elinvar::pool {
namespace {

struct SimOptions {
  std::string scenario, table, jobs, hosts, csv, html, trace_folder, models = "exact";
  std::vector<std::string> policies;
  int seeds = 10;
  uint64_t first = 1;
  double until = 0, horizon = 0;
  bool json = false, log = false;
  std::vector<std::string> check_configs;
  CheckOptions check;
};

constexpr double kGoodEnough = 0.05;  // largest relative error at which a simulation passes the check

Belief belief_of(const std::string& name) {
  return name == "linear" ? Belief::kLinear : name == "learned" ? Belief::kLearned : Belief::kExact;
}

// Makes a scenario of a recorded trace and the requested policies.
Scenario recorded(const SimOptions& o) {
  Scenario scenario;
  scenario.name = "trace";
  scenario.what = fmt::format("{} on {}", o.jobs, o.hosts);
  for (const NamedPolicy& policy : policies())
    scenario.contestants.push_back({policy.name, policy.name, belief_of(o.models), Contestant::Terms::kNone});
  return scenario;
}

void keep_only(Scenario& scenario, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return;
  const std::string baseline = scenario.contestants[scenario.baseline].label;
  std::vector<Contestant> kept;
  for (const std::string& name : wanted) {
    const size_t before = kept.size();
    for (const Contestant& c : scenario.contestants)
      if (c.label == name || c.policy == name) kept.push_back(c);
    if (kept.size() == before) kept.push_back({name, policy_of(name).name, Belief::kExact, Contestant::Terms::kNone});
  }
  scenario.contestants = std::move(kept);
  scenario.baseline = 0;
  for (size_t i = 0; i < scenario.contestants.size(); ++i)
    if (scenario.contestants[i].label == baseline) scenario.baseline = i;
}

Results simulate_all(const Scenario& scenario, const SimOptions& o, const Table& table) {
  Results results;
  results.scenario = &scenario;
  const bool terminal = ::isatty(2) && !o.json;
  for (const Contestant& contestant : scenario.contestants) {
    std::vector<Outcome> outcomes;
    for (int k = 0; k < o.seeds; ++k) {
      if (terminal) fmt::print(stderr, "\r\033[K{}: seed {} of {}", contestant.label, k + 1, o.seeds);
      const uint64_t seed = o.first + static_cast<uint64_t>(k);
      Trace trace = o.jobs.empty() ? scenario.trace(seed, table) : read_trace(o.jobs, o.hosts);
      Table speeds = table;
      Conditions settings = scenario.settings;
      if (o.until > 0) settings.until = o.until;
      if (o.horizon > 0) settings.horizon = o.horizon;
      settings.models = contestant.models;
      settings.seed = seed;
      settings.keep_log = o.log;
      apply(contestant.terms, trace, speeds, settings.until);
      outcomes.push_back(simulate(trace, speeds, policy_of(contestant.policy).plan, settings));
      if (o.log) {
        if (terminal) fmt::print(stderr, "\r\033[K");
        fmt::print("{}, seed {}\n{}\n", contestant.label, seed, fmt::join(outcomes.back().log, "\n"));
      }
    }
    results.outcomes.push_back(std::move(outcomes));
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
  return results;
}

// Formats a number with as many digits as a reader can use.
std::string number(double value) {
  return std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

void print_table(const Results& results) {
  const Scenario& scenario = *results.scenario;
  fmt::print("{}: {}\n", scenario.name, scenario.what);
  if (!scenario.paper.empty()) fmt::print("{}\n", scenario.paper);
  const size_t seeds = results.outcomes.front().size();
  const std::string& baseline = scenario.contestants[scenario.baseline].label;
  fmt::print("Means of {} seeds, +- one standard deviation; (times better than '{}', seed by seed).\n", seeds,
             baseline);
  size_t wide = 8;
  for (const Contestant& c : scenario.contestants) wide = std::max(wide, c.label.size());
  constexpr size_t kColumns = 4;
  for (size_t from = 0; from < metrics().size(); from += kColumns) {
    const size_t to = std::min(metrics().size(), from + kColumns);
    fmt::print("\n{:{}}", "", wide);
    for (size_t m = from; m < to; ++m)
      fmt::print("  {:<32}", fmt::format("{} [{}]", metrics()[m].name, metrics()[m].unit));
    for (size_t c = 0; c < scenario.contestants.size(); ++c) {
      fmt::print("\n{:{}}", scenario.contestants[c].label, wide);
      for (size_t m = from; m < to; ++m) {
        const Spread spread = results.spread(c, m);
        std::string cell = fmt::format("{} +-{}", number(spread.mean), number(spread.deviation));
        if (const Spread better = results.better(c, m); c != scenario.baseline && better.mean > 0)
          cell += fmt::format(" ({:.3g}x +-{:.2g})", better.mean, better.deviation);
        fmt::print("  {:<32}", cell);
      }
    }
    fmt::print("\n");
  }
}

nlohmann::ordered_json json_of(const Results& results) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t c = 0; c < results.outcomes.size(); ++c) {
    nlohmann::ordered_json row{{"contestant", results.scenario->contestants[c].label},
                               {"policy", results.scenario->contestants[c].policy}};
    for (size_t m = 0; m < metrics().size(); ++m) {
      const Spread spread = results.spread(c, m), better = results.better(c, m);
      row["metrics"][metrics()[m].name] = {{"unit", metrics()[m].unit},
                                           {"mean", spread.mean},
                                           {"deviation", spread.deviation},
                                           {"times_better", better.mean},
                                           {"times_better_deviation", better.deviation},
                                           {"values", results.values(c, m)}};
    }
    rows.push_back(std::move(row));
  }
  return {{"scenario", results.scenario->name},
          {"what", results.scenario->what},
          {"paper", results.scenario->paper},
          {"baseline", results.scenario->contestants[results.scenario->baseline].label},
          {"rows", std::move(rows)}};
}

std::string csv_of(const Results& results, uint64_t first) {
  std::string csv = "scenario,contestant,seed,metric,unit,value\n";
  for (size_t c = 0; c < results.outcomes.size(); ++c)
    for (size_t m = 0; m < metrics().size(); ++m) {
      const std::vector<double> values = results.values(c, m);
      for (size_t k = 0; k < values.size(); ++k)
        csv +=
            fmt::format("{},\"{}\",{},\"{}\",{},{}\n", results.scenario->name, results.scenario->contestants[c].label,
                        first + k, metrics()[m].name, metrics()[m].unit, values[k]);
    }
  return csv;
}

// Measures a table first if none is given.
int run_check(SimOptions o) {
  o.check.configs.assign(o.check_configs.begin(), o.check_configs.end());
  o.check.seed = o.first;
  const NamedPolicy& policy = policy_of(o.policies.empty() ? "equal" : o.policies.front());
  Table table;
  if (o.table.empty()) {
    std::vector<Measured> measured;
    for (const std::filesystem::path& config : o.check.configs) {
      if (!o.json) fmt::print(stderr, "measures {} ...\n", config.string());
      measured.push_back(measure(
          config, {.slots = o.check.slots, .threads = o.check.threads, .overrides = o.check.overrides, .train = {}}));
    }
    table = parse_table(table_of(measured).dump(), "the measured table");
  } else {
    table = read_table(o.table);
  }
  if (!o.json) fmt::print(stderr, "runs {} jobs under the policy {} ...\n", o.check.jobs, policy.name);
  const CheckResult result = check_simulation(o.check, table, policy);
  if (o.json) fmt::print("{}\n", json_of(result).dump(2));
  else fmt::print("{}", text_of(result));
  return result.worst() <= kGoodEnough ? 0 : 1;
}

int run(const SimOptions& o) {
  if (!o.check_configs.empty()) return run_check(o);
  check(o.jobs.empty() == o.hosts.empty(), "a recorded trace is two files: give both --jobs and --hosts");
  if (o.scenario.empty() && o.jobs.empty()) {
    fmt::print("Scenarios:\n");
    for (const Scenario& s : scenarios()) fmt::print("  {:10} {}\n", s.name, s.what);
    fmt::print("Policies:\n");
    for (const NamedPolicy& p : policies()) fmt::print("  {:14} {}\n", p.name, p.what);
    return 0;
  }
  const Table table = o.table.empty() ? parse_table(kPoolSpeeds, "the built-in table") : read_table(o.table);
  Scenario scenario = o.jobs.empty() ? scenario_of(o.scenario) : recorded(o);
  keep_only(scenario, o.policies);
  if (!o.trace_folder.empty()) {
    const std::filesystem::path folder = o.trace_folder;
    std::filesystem::create_directories(folder);
    write_trace(scenario.trace ? scenario.trace(o.first, table) : read_trace(o.jobs, o.hosts), folder / "jobs.csv",
                folder / "hosts.csv");
  }
  for (const std::string& written : {o.csv, o.html})
    if (!written.empty()) check_output(written);
  const Results results = simulate_all(scenario, o, table);
  if (o.json) {
    fmt::print("{}\n", json_of(results).dump(2));
  } else {
    print_table(results);
  }
  if (!o.csv.empty()) write_output(o.csv, csv_of(results, o.first));
  if (!o.html.empty()) write_output(o.html, chart_page(results));
  return 0;
}

}  // namespace

Command add_sim(CLI::App& pool) {
  auto o = std::make_shared<SimOptions>();
  CLI::App* app =
      pool.add_subcommand("sim", "policies in simulated time: tables of several policies over several seeds");
  app->add_option("scenario", o->scenario, "an experiment; without one, and without --jobs, their names are printed");
  app->add_option("--policy", o->policies,
                  "only these policies or rows; the first is the baseline unless its own is kept");
  app->add_option("--seeds", o->seeds, "how many")->capture_default_str()->check(CLI::Range(1, 10000));
  app->add_option("--first-seed", o->first, "the first of them")->capture_default_str();
  app->add_option("--table", o->table, "speeds and costs (tools/pool/sim/table.h)")->check(CLI::ExistingFile);
  app->add_option("--jobs", o->jobs, "a recorded trace: its jobs (tools/pool/sim/trace.h)")->check(CLI::ExistingFile);
  app->add_option("--hosts", o->hosts, "a recorded trace: its hosts")->check(CLI::ExistingFile);
  app->add_option("--models", o->models, "of speeds, with a recorded trace: exact, learned or linear")
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "learned", "linear"}));
  app->add_option("--until", o->until, "seconds after which to stop")->check(positive);
  app->add_option("--horizon", o->horizon, "seconds within which a change must pay")->check(positive);
  app->add_option("--csv", o->csv, "also a file with every metric of every seed");
  app->add_option("--html", o->html, "also a page with bars");
  app->add_option("--save-trace", o->trace_folder, "also jobs.csv and hosts.csv of the first seed, in this folder");
  app->add_flag("--log", o->log, "every decision with its reason");
  const std::string check = "Simulation against reality";
  app->add_option("--check", o->check_configs,
                  "runs jobs of these configurations on this host, and simulates the same; 1: they are more than 5 % "
                  "apart. Without --table, one is measured first (pool measure)")
      ->check(CLI::ExistingFile)
      ->group(check);
  app->add_option("--slots", o->check.slots, "of this host")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024))
      ->group(check);
  app->add_option("--threads", o->check.threads, "of each slot")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(check);
  app->add_option("--number", o->check.jobs, "how many jobs")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->group(check);
  app->add_option("--seconds", o->check.seconds, "that a job takes alone on one slot, on average")
      ->capture_default_str()
      ->check(positive)
      ->group(check);
  app->add_option("--repeat", o->check.repeat, "how often they run; what was simulated is compared with the median")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->group(check);
  app->add_option("--set", o->check.overrides, "table.key=value: overrides one key of the configurations")
      ->take_all()
      ->allow_extra_args(false)
      ->group(check);
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return run(*o); }};
}

}  // namespace elinvar::pool
