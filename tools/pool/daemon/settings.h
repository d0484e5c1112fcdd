#pragma once
// DIR/pool.toml: the settings of a pool. Table [pool] has those of PoolSettings, and every other table is a source of
// machines with the keys of SourceOptions, under a name of the user's choice. Every key has a default; without the file
// the pool has this host's CPUs. tools/docs/pool.md documents the keys.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/pool/hosts/source.h"

namespace elinvar::pool {

struct PoolSettings {
  std::string policy = "marginal";
  std::string advertise;
  std::string train;  // the program; default: in this program's folder
  double grace = 20, patience = 1800, turn = 300, horizon = 120, replan = 10, idle = 120;
  bool trials = true;  // jobs try other sizes briefly to be measured (advisor.h)
  int failures = 5;
  int page = 0;
};

struct Settings {
  PoolSettings pool;
  std::vector<SourceOptions> sources;
};

// Throws UsageError that names file, line and key.
Settings parse_settings(std::string_view text, const std::string& name);

}  // namespace elinvar::pool
