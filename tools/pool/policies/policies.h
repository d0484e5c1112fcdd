#pragma once
// The policies by name. Each has a file in this folder and is a pure function: the same pool gives the same plan.
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

Plan fifo(const Pool& pool);
Plan queue(const Pool& pool);
Plan backfill(const Pool& pool);
Plan equal(const Pool& pool);
Plan marginal(const Pool& pool);
Plan elastic_fifo(const Pool& pool);
Plan program(const Pool& pool);
Plan cells(const Pool& pool);

struct NamedPolicy {
  const char* name;
  const char* what;  // one line for people
  Plan (*plan)(const Pool&);
};
const std::vector<NamedPolicy>& policies();

// Throws UsageError that lists the known names.
const NamedPolicy& policy_of(const std::string& name);

}  // namespace elinvar::pool
