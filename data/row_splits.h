#pragma once
// Divides data that are rows of files (tables, texts with labels) into training, validation and test. Files of a folder
// with "val" or "test" in their names are for validation or test. If there are no validation rows, or if a
// fraction is given, validation is held out of the training rows by a fixed permutation that no seed changes.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"

namespace elinvar {

// Reads the rows of a file, and returns how many there are so far, over all files.
using ReadRows = std::function<int64_t(const std::filesystem::path& file)>;

// The indices of rows, in the order in which they were read.
struct SplitRows {
  std::vector<int64_t> rows;      // of the split
  std::vector<int64_t> training;  // of the training split
};

// Reads the files at config.path: one file, or those of a folder whose names are of that kind. Throws Failure if there
// are none, and what check_setting() throws if the fraction leaves a part without rows.
SplitRows read_split(const DataConfig& config, Split split, const std::function<bool(std::string_view name)>& of_kind,
                     const ReadRows& read);

}  // namespace elinvar
