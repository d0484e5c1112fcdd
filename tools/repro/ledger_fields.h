#pragma once
// What differs between two lines of a ledger.
#include <string>
#include <vector>

#include "elastic/ledger.h"

namespace elinvar {

// The fields that two lines of one step both have and that differ: "batch_size", "batch", "loss", "leaf 3", "gradient",
// "lr", "state".
std::vector<std::string> differing_fields(const LedgerLine& a, const LedgerLine& b);

}  // namespace elinvar
