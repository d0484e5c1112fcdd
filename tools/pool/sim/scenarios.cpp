#include "tools/pool/sim/scenarios.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tools/pool/sim/synthetic.h"

namespace elinvar::pool {
namespace {

using Terms = Contestant::Terms;

void add(Trace& trace, std::vector<TraceHost> hosts) {
  trace.hosts.insert(trace.hosts.end(), hosts.begin(), hosts.end());
}

// A hundred nodes that are idle a fifth of the time, and more training than fits into that.
Trace harvest(uint64_t seed, const Table& table) {
  Trace trace;
  Arrivals arrivals;
  arrivals.jobs = 30;
  arrivals.between = 60;
  arrivals.median_time = 4 * 3600;
  arrivals.sigma = 0.5;
  arrivals.longest = 24 * 3600;
  arrivals.sizes = {{1, 0.4}, {2, 0.3}, {4, 0.3}};
  arrivals.grow = 8;
  arrivals.shrink = 4;
  arrivals.asked_kind = {"V100"};
  trace.jobs = philly_like(seed, arrivals, table);
  add(trace, fragments(seed, 100, "V100", 6 * 3600, 0.2, 30));
  return trace;
}

Trace mixed(uint64_t seed, const Table& table) {
  Trace trace;
  Arrivals arrivals;
  arrivals.jobs = 68;
  arrivals.between = 45;
  arrivals.median_time = 1800;
  arrivals.sizes = {{1, 0.3}, {2, 0.15}, {4, 0.25}, {8, 0.2}, {16, 0.1}};
  arrivals.shrink = 1000;  // from one worker to the size asked for, since virtual ranks limit it
  arrivals.asked_kind = {"V100", "P100", "T4"};
  trace.jobs = philly_like(seed, arrivals, table);
  add(trace, cluster(seed, 4, 8, "V100", 1, kNever));
  add(trace, cluster(seed, 2, 8, "P100", 1, kNever));
  add(trace, cluster(seed, 2, 8, "T4", 1, kNever));
  return trace;
}

Trace elastic(uint64_t seed, const Table& table) {
  Trace trace;
  Arrivals arrivals;
  arrivals.jobs = 120;
  arrivals.between = 60;
  arrivals.median_time = 2400;
  arrivals.sizes = {{1, 0.2}, {2, 0.2}, {4, 0.25}, {8, 0.25}, {16, 0.1}};
  arrivals.grow = 2;
  arrivals.shrink = 2;
  arrivals.asked_kind = {"V100"};
  trace.jobs = philly_like(seed, arrivals, table);
  add(trace, cluster(seed, 16, 4, "V100", 1, kNever));
  return trace;
}

Trace shapes(uint64_t seed, const Table& table) {
  Trace trace;
  Arrivals arrivals;
  arrivals.jobs = 80;
  arrivals.between = 60;
  arrivals.median_time = 2400;
  arrivals.sizes = {{1, 0.25}, {2, 0.25}, {4, 0.25}, {8, 0.25}};
  arrivals.grow = 4;
  arrivals.shrink = 4;
  arrivals.asked_kind = {"V100", "T4"};
  trace.jobs = philly_like(seed, arrivals, table);
  add(trace, cluster(seed, 4, 8, "V100", 1, kNever));
  add(trace, cluster(seed, 4, 8, "T4", 1, kNever));
  return trace;
}

// Hosts that fail every few hours, and in addition nodes that come and go.
Trace faults(uint64_t seed, const Table& table) {
  Trace trace = elastic(seed, table);
  trace.hosts.clear();
  add(trace, cluster(seed, 12, 4, "V100", 12 * 3600, 4 * 3600));
  add(trace, fragments(seed, 64, "V100", 12 * 3600, 0.25, 30));
  return trace;
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = [] {
    Conditions harvesting;
    harvesting.until = 6 * 3600;
    return std::vector<Scenario>{
        {"harvest",
         "30 jobs on the idle fifth of 100 nodes, for six hours (MalleTrain)",
         "MalleTrain: throughput +22.3 % over FreeTrain, the same program with speeds that users state; up to 93 % of "
         "what dedicated nodes give. Like for like: fragments (their three figures), the objective, no migration. Not: "
         "their jobs and machines; a linear guess stands for what users state.",
         {{"equal", "equal", Belief::kExact, Terms::kNone},
          {"marginal", "marginal", Belief::kExact, Terms::kNone},
          {"program, linear", "program", Belief::kLinear, Terms::kNone},
          {"program, learned", "program", Belief::kLearned, Terms::kNone},
          {"program", "program", Belief::kExact, Terms::kNone},
          {"program, dedicated", "program", Belief::kExact, Terms::kDedicated}},
         0,
         harvesting,
         harvest},
        {"mixed",
         "68 jobs on 32 V100, 16 P100 and 16 T4 (EasyScale)",
         "EasyScale: completion 8.3x (one kind a job) and 13.2x (kinds mixed) better than YARN's capacity scheduler, "
         "makespan "
         "2.5x and 2.8x. Like for like: the cluster, the number of jobs, the waste rule. Not: their trace, which is "
         "not "
         "public, and with it the load, on which queueing and so the ratio of completion times depends most.",
         {{"fifo, kind asked for", "fifo", Belief::kExact, Terms::kOneKind},
          {"queue, kind asked for", "queue", Belief::kExact, Terms::kOneKind},
          {"fifo, any kind", "fifo", Belief::kExact, Terms::kNone},
          {"backfill", "backfill", Belief::kExact, Terms::kNone},
          {"equal", "equal", Belief::kExact, Terms::kNone},
          {"marginal, one kind", "marginal", Belief::kExact, Terms::kOneKind},
          {"marginal", "marginal", Belief::kExact, Terms::kNone},
          {"cells", "cells", Belief::kExact, Terms::kNone},
          {"program", "program", Belief::kExact, Terms::kNone}},
         0,
         {},
         mixed},
        {"elastic",
         "120 jobs on 16 hosts of 4 V100, between half and twice what they ask for (Elan)",
         "Elan: pending time -43 %, completion -25 %, makespan -21 % against fixed sizes with the same order. Like for "
         "like: elastic FIFO with backfill against static FIFO and backfill. Not: their trace; their jobs' batches "
         "grow.",
         {{"fifo", "fifo", Belief::kExact, Terms::kNone},
          {"backfill", "backfill", Belief::kExact, Terms::kNone},
          {"elastic-fifo", "elastic-fifo", Belief::kExact, Terms::kNone},
          {"marginal", "marginal", Belief::kExact, Terms::kNone},
          {"program", "program", Belief::kExact, Terms::kNone}},
         0,
         {},
         elastic},
        {"cells",
         "80 jobs on 32 V100 and 32 T4, some of which need recomputation on the smaller (Crius)",
         "Crius: completion up to -48.9 %, throughput up to 1.49x. Not like for like: its cells choose among stages of "
         "a pipeline and parallel parts of tensors, which this engine does not have; here they choose kinds, sizes and "
         "recomputation.",
         {{"backfill", "backfill", Belief::kExact, Terms::kOneShape},
          {"marginal, one shape", "marginal", Belief::kExact, Terms::kOneShape},
          {"cells, one shape", "cells", Belief::kExact, Terms::kOneShape},
          {"cells", "cells", Belief::kExact, Terms::kNone},
          {"program", "program", Belief::kExact, Terms::kNone}},
         0,
         {},
         shapes},
        {"faults",
         "120 jobs on hosts that fail and nodes that come and go, with speeds that are learned",
         "Nobody's experiment: what the parts do together.",
         {{"fifo", "fifo", Belief::kExact, Terms::kNone},
          {"equal", "equal", Belief::kLearned, Terms::kNone},
          {"marginal", "marginal", Belief::kLearned, Terms::kNone},
          {"program", "program", Belief::kLearned, Terms::kNone}},
         0,
         {},
         faults},
    };
  }();
  return all;
}

const Scenario& scenario_of(const std::string& name) {
  std::string names;
  for (const Scenario& scenario : scenarios()) {
    if (scenario.name == name) return scenario;
    names += (names.empty() ? "" : ", ") + scenario.name;
  }
  throw UsageError(fmt::format("[pool] there is no scenario '{}'; there are {}", name, names));
}

void apply(Terms terms, Trace& trace, Table& table, double until) {
  if (terms == Terms::kOneKind)
    for (TraceJob& job : trace.jobs)
      if (job.kinds.size() > 1) job.kinds.resize(1);
  if (terms == Terms::kOneShape)
    for (auto& [name, model] : table) model.shapes.resize(1);
  if (terms == Terms::kDedicated) {
    check(until < kNever, "[pool] dedicated nodes stand for others up to some time: give --until");
    double area = 0;
    for (const TraceHost& host : trace.hosts)
      area += host.slots * std::max(0.0, std::min(host.until, until) - std::min(host.from, until));
    const std::string kind = trace.hosts.empty() ? "" : trace.hosts.front().kind;
    trace.hosts.clear();
    const int nodes = std::max(1, static_cast<int>(std::lround(area / until)));
    for (int i = 0; i < nodes; ++i) trace.hosts.push_back({fmt::format("node-{}", i), kind, 1, 0, kNever, 0});
  }
}

}  // namespace elinvar::pool
