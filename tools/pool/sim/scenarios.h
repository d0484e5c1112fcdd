#pragma once
// Experiments of the published systems, made again: for each a trace, the policies to compare, and what the paper
// claims.
#include <string>
#include <vector>

#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {

// One row of an experiment's table.
struct Contestant {
  std::string label, policy;
  Belief models = Belief::kExact;
  enum class Terms { kNone, kOneKind, kOneShape, kDedicated } terms = Terms::kNone;  // see `apply`
};

struct Scenario {
  std::string name, what;
  std::string paper;  // what its authors report, and where that is not like for like
  std::vector<Contestant> contestants;
  size_t baseline = 0;  // the contestant to whom the others are compared
  Conditions settings;
  Trace (*trace)(uint64_t seed, const Table& table);
};
const std::vector<Scenario>& scenarios();
const Scenario& scenario_of(const std::string& name);  // throws UsageError with the names that there are

// What a contestant's row changes of a trace and a table: jobs take the kind alone that they ask for (kOneKind),
// compute in their first shape alone (kOneShape), or hosts are replaced by as many that are always there as were there
// on average until `until` (kDedicated).
void apply(Contestant::Terms terms, Trace& trace, Table& table, double until);

}  // namespace elinvar::pool
