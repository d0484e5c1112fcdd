// The simulator: costs and their times, traces, and every policy's rules over random histories.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tensor/base/check.h"
#include "tests/places.h"
#include "tools/pool/sim/metrics.h"
#include "tools/pool/sim/scenarios.h"
#include "tools/pool/sim/synthetic.h"

namespace elinvar::pool {
namespace {

::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

// A model in which n workers make 10 n samples per second.
Table even_table() {
  Table table;
  auto speed = std::make_shared<TableSpeed>(64, 64);
  for (const int n : {1, 2, 4, 8, 16}) {
    speed->add("V100", {}, n, 10 * n);
    speed->add("T4", {}, n, 5 * n);
  }
  Model model{"even", "made up", 64, 64, {}, {}, speed, {{}}};
  model.costs = {.start = 10,
                 .join = 4,
                 .join_stall = 1,
                 .leave = 2,
                 .leave_stall = 0.5,
                 .death_stall = 3,
                 .stop = 5,
                 .finish = 2,
                 .checkpoint_every = 100};
  table["even"] = model;
  return table;
}

TraceJob even_job(double submitted, int min, int fixed, int max, double samples) {
  return {submitted, "even", fixed, min, max, samples, {}, 0, kNever};
}

// Expected values are exact. The simulator ends a job when a millionth of its work is left, and treats events within a
// microsecond as simultaneous (kEnd in simulate.cpp).
TEST(PoolSimulation, AJobAloneTakesItsStartItsWorkAndItsEnd) {
  const Trace trace{{even_job(5, 2, 2, 2, 1000)}, {{"host", "V100", 4, 0, kNever, 0}}};
  const Outcome outcome = simulate(trace, even_table(), equal);
  EXPECT_NEAR(outcome.jobs[0].ended, 5 + 10 + 1000 / 20.0 + 2, 1e-3);
  EXPECT_NEAR(outcome.jobs[0].alone, 50, 1e-9);
  EXPECT_NEAR(outcome.held, 2 * 62, 1e-2);
  EXPECT_NEAR(outcome.standing, 2 * 10, 1e-2);
  EXPECT_NEAR(outcome.available, 4 * 67, 1e-2);
  EXPECT_NEAR(outcome.work, 100, 1e-6);
}

TEST(PoolSimulation, ValidationsAreWorkToo) {
  Table table = even_table();
  table["even"].validations = {.every = 10, .samples = 100};
  // 30 steps of 64 samples, and validations after 10 and 20 of them and at the end.
  const Trace trace{{even_job(0, 2, 2, 2, 30 * 64)}, {{"host", "V100", 2, 0, kNever, 0}}};
  const Outcome outcome = simulate(trace, table, equal);
  EXPECT_NEAR(outcome.jobs[0].ended, 10 + (30 * 64 + 3 * 100) / 20.0 + 2, 1e-2);
  EXPECT_NEAR(outcome.work, (30 * 64 + 3 * 100) / 10.0, 1e-6);
}

TEST(PoolSimulation, GrowingIsCharged) {
  // Two slots; two more at 100 s: the first workers stand still for 1 s, and the newcomers do nothing for 4 s.
  const Trace trace{{even_job(0, 2, 2, 4, 4000)}, {{"a", "V100", 2, 0, kNever, 0}, {"b", "V100", 2, 100, kNever, 0}}};
  const Outcome outcome = simulate(trace, even_table(), marginal);
  const double before = 90 * 20 + 4 * 20;
  EXPECT_NEAR(outcome.jobs[0].ended, 100 + 1 + 4 + (4000 - before) / 40 + 2, 1e-2);
  EXPECT_EQ(outcome.changes, 2);
}

TEST(PoolSimulation, SlotsAreFreeWhenTheirWorkersHaveLeft) {
  // The second job gets two of four slots at 100 s: they are free 2 s later, and it starts then.
  const Trace trace{{even_job(0, 2, 4, 4, 1e5), even_job(100, 2, 2, 2, 200)}, {{"a", "V100", 4, 0, kNever, 0}}};
  Conditions settings;
  settings.until = 1000;
  const Outcome outcome = simulate(trace, even_table(), equal, settings);
  EXPECT_NEAR(outcome.jobs[1].ended, 100 + 2 + 10 + 10 + 2, 1e-2);
  EXPECT_EQ(outcome.jobs[0].ended, kNever);
  EXPECT_EQ(outcome.seconds, 1000);
}

TEST(PoolSimulation, AHostThatFailsTakesWhatWasNotSaved) {
  // The host fails at 275 s: after 10 s of start and with a checkpoint each 100 s, the last one is 75 s old.
  const Trace trace{{even_job(0, 1, 2, 2, 10000)}, {{"a", "V100", 2, 0, 275, 0}, {"a", "V100", 2, 400, kNever, 0}}};
  const Outcome outcome = simulate(trace, even_table(), fifo);
  EXPECT_NEAR(outcome.undone, 75 * 20 / 10.0, 1e-2);
  const double done = (275 - 10 - 75) * 20;
  EXPECT_NEAR(outcome.jobs[0].ended, 400 + 10 + (10000 - done) / 20 + 2, 1e-2);
  EXPECT_EQ(outcome.deaths, 1);
  EXPECT_NEAR(outcome.jobs[0].waited, 125, 1e-2);
}

TEST(PoolSimulation, WithNoticeNothingIsLost) {
  const Trace trace{{even_job(0, 1, 2, 4, 1e5)}, {{"a", "V100", 2, 0, 300, 30}, {"b", "V100", 2, 0, kNever, 0}}};
  Conditions settings;
  settings.until = 1000;
  const Outcome outcome = simulate(trace, even_table(), marginal, settings);
  EXPECT_EQ(outcome.deaths, 0);
  EXPECT_EQ(outcome.undone, 0);
  // Four workers from 10 to 270 s, half a second of standstill, then two.
  EXPECT_NEAR(outcome.jobs[0].samples, 260 * 40 + (1000 - 270.5) * 20, 40);  // 40: one second of work
}

TEST(PoolSimulation, TheSameSeedGivesTheSameHistory) {
  const Table table = even_table();
  Arrivals arrivals;
  arrivals.jobs = 12;
  arrivals.asked_kind = {"V100"};
  arrivals.shrink = 4;
  const Trace trace{philly_like(4, arrivals, table), fragments(4, 12, "V100", 4 * 3600, 0.5, 30)};
  Conditions settings;
  settings.until = 4 * 3600;
  settings.keep_log = true;
  settings.models = Belief::kLearned;
  const Outcome one = simulate(trace, table, cells, settings), other = simulate(trace, table, cells, settings);
  EXPECT_EQ(one.log, other.log);
  EXPECT_GT(one.log.size(), 20u);
  EXPECT_EQ(one.work, other.work);
}

// Histories with all kinds of events: kinds, failures, fragments, priorities, learned and exact speeds.
// ELINVAR_HISTORIES sets the number for each policy. The simulation itself checks every plan.
TEST(PoolSimulation, RandomHistoriesKeepTheRulesAndEverybodyEnds) {
  const char* text = std::getenv("ELINVAR_HISTORIES");
  const int count = text ? std::atoi(text) : 20;
  const Table table = even_table();
  int deaths = 0, changes = 0;
  for (int seed = 0; seed < count; ++seed)
    for (const NamedPolicy& policy : policies()) {
      if (policy.plan == program && seed % 10 != 0) continue;  // a thousand plans would take too long
      Dice dice(static_cast<uint64_t>(seed), "history");
      Arrivals arrivals;
      arrivals.jobs = 4 + dice.below(10);
      arrivals.between = 30 + dice.below(200);
      arrivals.median_time = 600;
      arrivals.sizes = {{1, 0.5}, {2, 0.3}, {4, 0.2}};
      arrivals.grow = 1 + dice.below(3);
      arrivals.shrink = 1 + dice.below(4);
      arrivals.asked_kind = {"V100", "T4"};
      Trace trace;
      trace.jobs = philly_like(static_cast<uint64_t>(seed), arrivals, table);
      for (TraceJob& job : trace.jobs) job.priority = dice.below(5) == 0 ? 2 : 0;
      const auto add = [&](const std::vector<TraceHost>& hosts) {
        trace.hosts.insert(trace.hosts.end(), hosts.begin(), hosts.end());
      };
      add(cluster(static_cast<uint64_t>(seed), 2 + dice.below(2), 2, "V100", 6 * 3600, dice.below(2) ? 3600 : kNever));
      add(cluster(static_cast<uint64_t>(seed), 2, 2, "T4", 6 * 3600, kNever));
      add(fragments(static_cast<uint64_t>(seed), 6, "V100", 6 * 3600, 0.4, dice.below(2) ? 30 : 0));
      Conditions settings;
      settings.seed = static_cast<uint64_t>(seed);
      settings.models = dice.below(2) ? Belief::kLearned : Belief::kExact;
      settings.patience = 600;
      Outcome outcome;
      ASSERT_NO_THROW(outcome = simulate(trace, table, policy.plan, settings)) << policy.name << ", seed " << seed;
      deaths += outcome.deaths;
      changes += outcome.changes;
      double work = 0;
      for (const JobOutcome& job : outcome.jobs) {
        EXPECT_LT(job.ended, kNever) << policy.name << ", seed " << seed << ": a job starved";
        EXPECT_DOUBLE_EQ(job.samples, job.total);
        EXPECT_GE(job.started, job.submitted);
        work += job.total / 10;
      }
      EXPECT_NEAR(outcome.work, work, 1e-6 * work);
      EXPECT_LE(outcome.held, outcome.available * (1 + 1e-9)) << policy.name << ", seed " << seed;
    }
  EXPECT_GT(deaths, count);
  EXPECT_GT(changes, 50 * count);
}

// Six jobs that never end share two slots: under an elastic policy each gets its turn again and again.
TEST(PoolSimulation, NobodyStarvesWhereNobodyEnds) {
  Trace trace;
  for (int i = 0; i < 6; ++i) trace.jobs.push_back(even_job(i, 1, 1, 2, 1e9));
  trace.jobs[0].priority = 3;
  trace.hosts = {{"a", "V100", 2, 0, kNever, 0}};
  Conditions settings;
  settings.until = 12 * 3600;
  settings.patience = 1800;
  for (const NamedPolicy& policy : policies()) {
    if (policy.plan == fifo || policy.plan == queue || policy.plan == backfill) continue;  // they never preempt
    const Outcome outcome = simulate(trace, even_table(), policy.plan, settings);
    for (const JobOutcome& job : outcome.jobs)
      EXPECT_GT(job.samples, 5 * 0.9 * settings.turn * 10) << policy.name << ": in 12 hours at least five turns";
  }
}

TEST(Traces, FragmentsAreAsLongAsThoseOfThePaper) {
  Dice dice(1, "test");
  std::vector<double> all;
  double sum = 0;
  for (int i = 0; i < 200000; ++i) sum += all.emplace_back(idle_fragment(dice));
  std::sort(all.begin(), all.end());
  // The median and the mean as in the paper, with the sampling error of 200000 draws.
  EXPECT_NEAR(all[all.size() / 2], 475, 0.02 * 475);
  EXPECT_NEAR(sum / static_cast<double>(all.size()), 1205, 0.02 * 1205);
  EXPECT_NEAR(all[all.size() * 9 / 10], 3348, 0.02 * 3348);
}

TEST(Traces, NodesAreIdleForThePartAskedFor) {
  const std::vector<TraceHost> hosts = fragments(3, 400, "V100", 12 * 3600, 0.25, 30);
  double area = 0;
  for (const TraceHost& host : hosts) area += std::min(host.until, 12.0 * 3600) - host.from;
  EXPECT_NEAR(area / (400 * 12 * 3600), 0.25, 0.02);  // sampling error of 400 nodes
}

class TraceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("elinvar-trace-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  std::string error() const {
    try {
      read_trace(folder_ / "jobs.csv", folder_ / "hosts.csv");
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(TraceFiles, AreReadAsTheyWereWritten) {
  const Table table = even_table();
  Arrivals arrivals;
  arrivals.jobs = 20;
  arrivals.asked_kind = {"V100", "T4"};
  Trace trace{philly_like(9, arrivals, table), fragments(9, 5, "V100", 3600, 0.5, 30)};
  trace.jobs[3].deadline = 1234.5;
  write_trace(trace, folder_ / "jobs.csv", folder_ / "hosts.csv");
  const Trace read = read_trace(folder_ / "jobs.csv", folder_ / "hosts.csv");
  ASSERT_EQ(read.jobs.size(), trace.jobs.size());
  ASSERT_EQ(read.hosts.size(), trace.hosts.size());
  for (size_t i = 0; i < read.jobs.size(); ++i) {
    EXPECT_EQ(read.jobs[i].submitted, trace.jobs[i].submitted);
    EXPECT_EQ(read.jobs[i].kinds, trace.jobs[i].kinds);
    EXPECT_EQ(read.jobs[i].deadline, trace.jobs[i].deadline);
    EXPECT_EQ(read.jobs[i].samples, trace.jobs[i].samples);
  }
  EXPECT_EQ(read.hosts.back().until, trace.hosts.back().until);
}

TEST_F(TraceFiles, ErrorsNameTheLine) {
  const std::string jobs = "submitted,model,fixed,min,max,samples,kinds,priority,deadline\n";
  write("hosts.csv", "host,kind,slots,from,until,notice\na,V100,2,0,,0\n");
  write("jobs.csv", jobs + "0,even,1,1,1,10,,0,\n0,even,1,two,1,10,,0,\n");
  EXPECT_TRUE(has(error(), "jobs.csv:3: min is 'two'"));
  write("jobs.csv", jobs + "0,even,1,1,1\n");
  EXPECT_TRUE(has(error(), "5 fields, expected 9"));
  write("jobs.csv", jobs + "0,even,1,4,2,10,,0,\n");
  EXPECT_TRUE(has(error(), "min 4 is more than max 2"));
  write("jobs.csv", "submitted,model\n0,even\n");
  EXPECT_TRUE(has(error(), "there is no column 'fixed'"));
}

TEST(Tables, NothingIsFree) {
  const std::string text =
      R"({"models": {"m": {"provenance": "x", "virtual_ranks": 8, "batch": 64,
          "rates": [{"kind": "a", "workers": 1, "rate": 5}],
          "costs": {"start": 1, "join": 1, "join_stall": 0, "leave": 1, "leave_stall": 1, "death_stall": 1, "stop": 1,
                    "checkpoint_every": 60}}}})";
  try {
    parse_table(text, "table.json");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_TRUE(has(error.what(), "join_stall"));
    EXPECT_TRUE(has(error.what(), "nothing is free"));
  }
  EXPECT_THROW(parse_table("{}", "table.json"), UsageError);
}

TEST(Tables, BetweenAndBeyondSizes) {
  TableSpeed speed(8, 80);
  speed.add("V100", {}, 2, 20);
  speed.add("V100", {}, 8, 40);
  speed.add("T4", {}, 2, 10);
  EXPECT_DOUBLE_EQ(speed.rate({{"V100", 1}}, {}).samples, 10);
  EXPECT_DOUBLE_EQ(speed.rate({{"V100", 4}}, {}).samples, 80 / ((80 / 20.0 + 80 / 40.0) / 2));
  EXPECT_DOUBLE_EQ(speed.rate({{"V100", 16}}, {}).samples, 40);
  EXPECT_EQ(speed.rate({{"V100", 2}}, {1, true}).samples, 0);
  EXPECT_EQ(speed.rate({{"P100", 2}}, {}).samples, 0);
  // One of each kind: one and half a virtual rank per second, of 8 virtual ranks with 10 samples: 5 and 3, or 6 and 2.
  EXPECT_DOUBLE_EQ(speed.rate({{"V100", 1}, {"T4", 1}}, {}).samples, 80 / 6.0);
}

TEST(Metrics, AreOfTheOutcome) {
  Outcome outcome;
  outcome.seconds = 100;
  outcome.available = 200;
  outcome.held = 150;
  outcome.work = 120;
  outcome.jobs.resize(2);
  outcome.jobs[0] = {"a", 0, 10, 50, 1, 1, 10, 25, 1};
  outcome.jobs[1] = {"a", 20, 20, 100, 1, 1, 0, 80, 1};
  const auto value = [&](const std::string& name) {
    for (const Metric& metric : metrics())
      if (metric.name == name) return metric.of(outcome);
    return std::nan("");
  };
  EXPECT_DOUBLE_EQ(value("completion, mean"), 65);
  EXPECT_DOUBLE_EQ(value("queueing, mean"), 5);
  EXPECT_DOUBLE_EQ(value("makespan"), 100);
  EXPECT_DOUBLE_EQ(value("goodput"), 60);
  EXPECT_DOUBLE_EQ(value("utilisation"), 75);
  EXPECT_DOUBLE_EQ(value("fairness"), 1.5 * 1.5 / (2 * (0.25 + 1)));
  EXPECT_DOUBLE_EQ(spread_of({1, 2, 3}).deviation, 1);
  EXPECT_DOUBLE_EQ(times_better({10, 20}, {20, 60}, false).mean, 2.5);
  EXPECT_DOUBLE_EQ(times_better({10, 20}, {5, 10}, true).mean, 2);
}

TEST(Scenarios, EachOneRuns) {
  const Table table = parse_table(
      [] {
        std::ifstream in(std::string(ELINVAR_SOURCE_DIR) + "/tools/pool/sim/speeds.json");
        return std::string{std::istreambuf_iterator<char>(in), {}};
      }(),
      "speeds.json");
  for (const Scenario& scenario : scenarios()) {
    const Contestant& contestant = scenario.contestants.back();
    Trace trace = scenario.trace(1, table);
    Table speeds = table;
    Conditions settings = scenario.settings;
    settings.until = 900;
    settings.models = contestant.models;
    apply(contestant.terms, trace, speeds, settings.until);
    const Outcome outcome = simulate(trace, speeds, equal, settings);
    EXPECT_GT(outcome.work, 0) << scenario.name;
    EXPECT_FALSE(scenario.paper.empty());
    for (const Contestant& c : scenario.contestants) EXPECT_NO_THROW(policy_of(c.policy)) << c.label;
  }
  EXPECT_THROW(scenario_of("none"), UsageError);
}

}  // namespace
}  // namespace elinvar::pool
