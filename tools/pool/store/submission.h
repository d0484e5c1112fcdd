#pragma once
// A job as its user submits it. Before it is stored, checked() makes sure that the configuration is valid, that bounds
// make sense, and that no path lies in the pool's own directory, where other jobs are.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/pool/store/job_records.h"

namespace elinvar::pool {

struct Submission {
  std::filesystem::path config = {};
  std::vector<std::string> overrides = {};
  std::string name = {};  // "": the configuration's run.name
  int min_workers = 1;
  int max_workers = 0;    // 0: the number of virtual ranks
  int fixed_workers = 0;  // for policies of fixed sizes; 0: max_workers
  int priority = 0;
  std::vector<std::string> kinds = {};
  double deadline = kNever;  // seconds from now
};

constexpr int kMostWorkers = 1024;

// Returns the record to store. Relative data paths are resolved from the current directory. Throws UsageError.
JobRecord checked(const Submission& submission, const std::filesystem::path& pool_directory, double now);

// Parses "90", "90s", "15m", "2h" or "1d" to seconds.
double parse_duration(const std::string& text);

}  // namespace elinvar::pool
