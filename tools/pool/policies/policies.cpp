#include "tools/pool/policies/policies.h"

#include "tensor/base/check.h"

namespace elinvar::pool {

const std::vector<NamedPolicy>& policies() {
  static const std::vector<NamedPolicy> all = {
      {"fifo", "first come first served, fixed sizes", fifo},
      {"queue", "the same in one queue: who does not fit holds up all after it", queue},
      {"backfill", "fixed sizes; small jobs go ahead where that delays nobody", backfill},
      {"equal", "equal shares", equal},
      {"elastic-fifo", "all that fit at their minimum, then the first comers grow", elastic_fifo},
      {"marginal", "each slot where it gains most", marginal},
      {"cells", "search over sizes, kinds and shapes by downgrades and upgrades", cells},
      {"program", "the best plan within the horizon, by a mixed-integer program", program},
  };
  return all;
}

const NamedPolicy& policy_of(const std::string& name) {
  std::string names;
  for (const NamedPolicy& policy : policies()) {
    if (policy.name == name) return policy;
    names += (names.empty() ? "" : ", ") + std::string(policy.name);
  }
  throw UsageError(fmt::format("[pool] there is no policy '{}'; there are {}", name, names));
}

}  // namespace elinvar::pool
