#pragma once
// Compares simulation with reality: the same jobs at the same times, under the same policy with the same table, with
// real workers on this host (rehearsal.h) and in simulated time. A shared host varies in speed, so the real jobs may
// run several times, and the median is compared.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/pool/policies/policies.h"
#include "tools/pool/sim/table.h"

namespace elinvar::pool {

struct CheckOptions {
  std::vector<std::filesystem::path> configs;  // jobs alternate among these
  std::vector<std::string> overrides = {};
  int slots = 2, threads = 1;
  int jobs = 6;
  double seconds = 30;  // mean duration of a job alone on one slot
  int repeat = 1;       // real runs
  uint64_t seed = 1;
  std::string train = {};  // the program; "": in this program's folder
};

struct Compared {
  std::string what, unit;
  double live = 0, simulated = 0;  // live: the median of the real runs
  double least = live, most = live;
  double error() const { return live > 0 ? simulated / live - 1 : 0; }
};

struct CheckResult {
  std::vector<Compared> jobs;  // seconds from submission to the end
  std::vector<Compared> sums;  // mean completion, makespan, throughput
  double worst() const;        // the largest absolute error of a sum
};

// `table` has a model for each configuration, named by its run.name.
CheckResult check_simulation(const CheckOptions& options, const Table& table, const NamedPolicy& policy);

std::string text_of(const CheckResult& result);
nlohmann::ordered_json json_of(const CheckResult& result);

}  // namespace elinvar::pool
