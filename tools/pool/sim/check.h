#pragma once
// Simulation against reality: the same jobs at the same times, under the same policy with the same table, with real
// workers on this host (rehearsal.h) and in simulated time. A host that it shares with others is not equally fast
// twice, so the real ones may run several times, and their median counts.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/pool/policies/policies.h"
#include "tools/pool/sim/table.h"

namespace elinvar::pool {

struct CheckOptions {
  std::vector<std::filesystem::path> configs;  // jobs take turns among these
  std::vector<std::string> overrides = {};
  int slots = 2, threads = 1;
  int jobs = 6;
  double seconds = 30;  // that a job takes alone on one slot, on average
  int repeat = 1;       // how often they run
  uint64_t seed = 1;
  std::string train = {};  // the program; "": the one beside this one
};

struct Compared {
  std::string what, unit;
  double live = 0, simulated = 0;  // the median of the live ones
  double least = live, most = live;
  double error() const { return live > 0 ? simulated / live - 1 : 0; }
};

struct CheckResult {
  std::vector<Compared> jobs;  // seconds from submission to the end
  std::vector<Compared> sums;  // completion on average, makespan, throughput
  double worst() const;        // the largest error of a sum, without its sign
};

// `table` has a model for each configuration, by its run.name.
CheckResult check_simulation(const CheckOptions& options, const Table& table, const NamedPolicy& policy);

std::string text_of(const CheckResult& result);
nlohmann::ordered_json json_of(const CheckResult& result);

}  // namespace elinvar::pool
