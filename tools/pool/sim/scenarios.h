#pragma once
// The experiments of published systems, repeated: each has a trace, the policies to compare, and the paper's claims.
#include <string>
#include <vector>

#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {

// One row of an experiment's table.
struct Contestant {
  std::string label, policy;
  Belief models = Belief::kExact;
  enum class Terms { kNone, kOneKind, kOneShape, kDedicated } terms = Terms::kNone;  // see apply()
};

struct Scenario {
  std::string name, what;
  std::string paper;  // what its authors report, and what differs here
  std::vector<Contestant> contestants;
  size_t baseline = 0;  // the contestant that others are compared with
  Conditions settings;
  Trace (*trace)(uint64_t seed, const Table& table);
};
const std::vector<Scenario>& scenarios();
const Scenario& scenario_of(const std::string& name);  // throws UsageError that lists the known names

// Applies a contestant's restriction to a trace and a table. kOneKind: jobs may only use the kind that they ask for.
// kOneShape: jobs compute in their first shape only. kDedicated: hosts are replaced by permanent ones of one slot, as
// many as there were slots on average until `until`.
void apply(Contestant::Terms terms, Trace& trace, Table& table, double until);

}  // namespace elinvar::pool
