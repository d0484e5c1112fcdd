#pragma once
// What the coordinator is told of a step, and writes to ledger, digests.jsonl (LEDGER.md) and metrics: as much of it as
// the run's configuration asks for. Functions of their arguments.
#include <nlohmann/json.hpp>

#include "elastic/ledger/ledger.h"
#include "elastic/step/step.h"

namespace elinvar {

// Of one leaf of update `step` + 1, before it leaves the worker: the digest of its gradients and terms, and those of
// single tensors where they are due.
void digest_leaf(Leaf& leaf, int64_t step, const LedgerOptions& ledger, int vranks);

// Of the state that is told with the step, if it is: before the update.
nlohmann::json state_facts(const Reduced& reduced);
// Of update `step` + 1, which was made with this learning rate; `gradient` is that of the reduced one and its terms.
struct UpdateFacts {
  nlohmann::json facts;
  std::string digests;  // the line of digests.jsonl; "": it has none of this step
};
UpdateFacts update_facts(const Reduced& reduced, TensorsDigest gradient, int64_t step, double lr,
                         const LedgerOptions& ledger, int vranks);

}  // namespace elinvar
