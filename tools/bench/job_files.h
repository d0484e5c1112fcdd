#pragma once
// Files of benchmark jobs: a temporary folder, and texts with many symbols.
#include <string>

#include "tensor/base/scratch_folder.h"

namespace elinvar::bench {

// A temporary folder, removed with its content by the destructor.
struct Folder {
  ScratchFolder scratch{"elinvar-bench"};
  std::string path = scratch.path();
};

// Writes a text of `length` symbols out of `symbols` different ones, each four bytes of UTF-8.
void write_text(const std::string& path, int64_t symbols, int64_t length);

}  // namespace elinvar::bench
