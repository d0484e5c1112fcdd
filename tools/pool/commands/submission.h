#pragma once
// A job as its user asks for it, checked before it is on file: the configuration must be one, bounds must make sense,
// and nothing may lie in the pool's own directory, where other jobs are.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/pool/store/store.h"

namespace elinvar::pool {

struct Submission {
  std::filesystem::path config = {};
  std::vector<std::string> overrides = {};
  std::string name = {};  // "": the configuration's
  int min_workers = 1;
  int max_workers = 0;    // 0: as many as there are virtual ranks
  int fixed_workers = 0;  // for policies of fixed sizes; 0: max_workers
  int priority = 0;
  std::vector<std::string> kinds = {};
  double deadline = kNever;  // seconds from now
};

constexpr int kMostWorkers = 1024;

// What is put on file. Paths of data are taken from here, the submitter's folder, and made absolute. UsageError.
JobRecord checked(const Submission& submission, const std::filesystem::path& pool_directory, double now);

// "90", "90s", "15m", "2h" or "1d" as seconds.
double parse_duration(const std::string& text);

}  // namespace elinvar::pool
