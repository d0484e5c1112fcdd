#pragma once
// Holds out a fraction of a training part for validation, by a fixed permutation that no seed changes.
#include <cstdint>
#include <vector>

namespace elinvar {

// Returns the places in [0, n) that are held out, or those that remain for `training`, ascending. Throws what
// check_setting() throws, with the key data.validation_fraction and `what` there are n of, if either part is empty.
std::vector<int64_t> held_out(int64_t n, double fraction, bool training, const char* what);

}  // namespace elinvar
