#pragma once
// AMX in plain C++, for processors that do not have it: the instructions of the kernel of exact products for tiles of
// bytes (tensor/byte_tile.inc) as Intel's manual specifies them.
#include "tensor/pair_tile.h"

namespace elinvar::test {

inline constexpr PairUnits kAllPairUnits[] = {PairUnits::vectors, PairUnits::dot_products, PairUnits::tiles};

// Chooses the units that exact products use at most. Where the processor has no tiles of bytes, the model computes
// them.
void use_units(PairUnits most);
void use_best_units();  // those of the processor

const char* name_of(PairUnits units);

}  // namespace elinvar::test
