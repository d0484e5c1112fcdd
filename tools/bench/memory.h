#pragma once
// The memory that a case needs, as counted by the allocators and by the kernel.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "tensor/stream.h"

namespace elinvar::bench {

class MemoryWatch {
 public:
  explicit MemoryWatch(Device device = {});  // returns idle memory to the system and resets all counts
  void steady();  // requests to the system, and a GPU's memory without graphs, are counted from here on
  // in_use_mb: peak memory of tensors; rss_mb: peak resident set (VmHWM, 0 if the kernel cannot reset it); fresh:
  // requests since steady() that needed memory from the system. For a GPU also gpu_mb: peak memory of tensors there,
  // of recorded graphs too.
  nlohmann::ordered_json figures() const;

 private:
  Device device_;
  bool counts_rss_;
  int64_t system_calls_ = 0;
};

}  // namespace elinvar::bench
