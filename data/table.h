#pragma once
// Tables: samples of numbers and categories, `kind = "table"` and `"synthetic_table"`.
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_table(const DataConfig& config, Split split);

// Makes rows by a rule, so that the least loss that a network can reach is known. Numbers x are integers from -2 to 2.
// Each number has a weight w, and each category a vector v of four factors; both consist of -1, 0 and 1. The target is
// 1 with probability 2^t / (1 + 2^t), else 0, where
//   t = sum of w_f x_f over numbers + sum of v_j . v_k over pairs of categories, limited to -6 .. 6
// A column of several categories has up to data.most_ids of them in a row, each number equally often, and v is the sum
// of their vectors.
std::unique_ptr<Dataset> open_synthetic_table(const DataConfig& config, Split split);

// Returns Field::most_ids of so many columns: data.most_ids, or nothing if no column has several. Throws what
// check_setting() throws for numbers that do not fit.
std::vector<int64_t> most_ids_of(const DataConfig& config, size_t columns);

}  // namespace elinvar
