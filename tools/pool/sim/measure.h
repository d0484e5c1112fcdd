#pragma once
// Measures what the simulator must know of a job, with the job itself on this host: its speed with one worker and more,
// and the costs of changes. It runs in the daemon's loop, like the jobs of a pool, under a policy that assigns the
// workers that the measurement needs.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/pool/sim/table.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

struct MeasureOptions {
  int slots = 2, threads = 1;  // measures 1, 2, 4 ... slots workers; needs two slots to measure changes
  double seconds = 5;          // at each size, at least
  int repeat = 3;              // times that each change is measured
  std::vector<std::string> overrides = {};
  std::string train = {};  // the program; "": in this program's folder
};

// An entry of a table's "models"; its name is the configuration's run.name.
struct Measured {
  std::string name;
  nlohmann::ordered_json model;
};
Measured measure(const std::filesystem::path& config, const MeasureOptions& options);

// Returns an entry for each name, from the newest job of the store that ran long enough.
std::vector<Measured> learned(const Store& store);

// Returns {"models": ...}, as table.h reads it. Throws UsageError if two entries have one name.
nlohmann::ordered_json table_of(const std::vector<Measured>& measured);

}  // namespace elinvar::pool
