#pragma once
// What the simulator must know of a job, measured with the job itself on this host: its speed with one worker and more,
// and what changes cost it. It runs as a pool's jobs do, by the daemon's loop, under a policy that gives it what the
// measurement asks for.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/pool/sim/table.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

struct MeasureOptions {
  int slots = 2, threads = 1;  // 1, 2, 4 ... slots workers; at least two slots, so that there are changes
  double seconds = 5;          // at each size, and at least
  int repeat = 3;              // of each change
  std::vector<std::string> overrides = {};
  std::string train = {};  // the program; "": the one beside this one
};

// An entry of a table's "models": its name is the configuration's run.name.
struct Measured {
  std::string name;
  nlohmann::ordered_json model;
};
Measured measure(const std::filesystem::path& config, const MeasureOptions& options);

// Returns an entry for each name: the newest job of the store that ran for long enough.
std::vector<Measured> learned(const Store& store);

// {"models": ...}, as table.h reads it. UsageError for two of one name.
nlohmann::ordered_json table_of(const std::vector<Measured>& measured);

}  // namespace elinvar::pool
