#pragma once
// What jobs that are measured are made of: a place, and texts with many symbols.
#include <string>

#include "tensor/base/scratch_folder.h"

namespace elinvar::bench {

// A temporary folder; it goes with everything in it.
struct Folder {
  ScratchFolder scratch{"elinvar-bench"};
  std::string path = scratch.path();
};

// A text of `length` symbols out of so many different ones, each of four bytes of UTF-8.
void write_text(const std::string& path, int64_t symbols, int64_t length);

}  // namespace elinvar::bench
