#pragma once
// Tables: samples of numbers and categories, `kind = "table"` and `"synthetic_table"`.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_table(const DataConfig& config, Split split);

// Rows made by a rule, so that the least loss that a network can have is known: click data without a file. With
// integers x of -2 to 2, and v of -1, 0 and 1 for each category and each of four factors,
//   t = sum of w_f x_f over numbers + sum of v_j . v_k over pairs of categories, limited to -6 .. 6
// and the target is 1 with probability 2^t / (1 + 2^t), else 0.
std::unique_ptr<Dataset> open_synthetic_table(const DataConfig& config, Split split);

}  // namespace elinvar
