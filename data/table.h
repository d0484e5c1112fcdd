#pragma once
// Tables: samples of numbers and categories, `kind = "table"` and `"synthetic_table"`.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_table(const DataConfig& config, Split split);

// Makes rows by a rule, so that the least loss that a network can reach is known. Numbers x are integers from -2 to 2.
// Each number has a weight w, and each category a vector v of four factors; both consist of -1, 0 and 1. The target is
// 1 with probability 2^t / (1 + 2^t), else 0, where
//   t = sum of w_f x_f over numbers + sum of v_j . v_k over pairs of categories, limited to -6 .. 6
std::unique_ptr<Dataset> open_synthetic_table(const DataConfig& config, Split split);

}  // namespace elinvar
