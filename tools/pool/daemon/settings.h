#pragma once
// DIR/pool.toml: the settings of a pool. Every key has a default; without the file the pool has this host's CPUs.
//
//   [pool]
//   policy = "marginal"       # one of tools/pool/policies/policies.h
//   grace = 20                # seconds for a worker to leave before it is killed
//   advertise = "head"        # this host's name for others; required if a source is not local
//   page = 8080               # port of the page, on loopback; 0: any, -1: none
//
//   [here]                    # any other table is a source of machines, under a name of your choice
//   source = "local"          # or ssh, slurm: tools/pool/hosts/source.h
//   slots = 2
//   threads = 4
//
//   [gpus]
//   source = "local"
//   device = "cuda"           # each worker has a GPU of its own: there are as many slots as GPUs
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
