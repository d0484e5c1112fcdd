#pragma once
// Sparse tables (nn/touched_rows.h) of workers that divide them: where they are cut, and the memory that they need.
#include <map>

#include "nn/optimizer.h"
#include "nn/parameters.h"
#include "tools/training/memory_forecast.h"

namespace elinvar {

// Returns, by index, the numbers of elements at whose multiples sparse tables are cut (ShardOptions::tables). Slices of
// the table and of each tensor of its state have whole rows and whole chunks of the digest.
std::map<int, int64_t> table_cuts(const Parameters& parameters, const OptimizerConfig& optimizer);

// Sets the shapes of the parameters and of their gradients, and the needs of sparse tables.
void set_parameters(MemoryNeeds& needs, const Parameters& parameters, const OptimizerConfig& optimizer);

}  // namespace elinvar
