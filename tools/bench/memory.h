#pragma once
// The memory that a case needs, as counted by the allocator and by the kernel.
#include <cstdint>
#include <nlohmann/json.hpp>

namespace elinvar::bench {

class MemoryWatch {
 public:
  MemoryWatch();  // returns idle memory to the system and resets both counts
  void steady();  // requests to the system are counted from here on
  // in_use_mb: peak memory of tensors; rss_mb: peak resident set (VmHWM, 0 if the kernel cannot reset it); fresh:
  // requests since steady() that needed memory from the system.
  nlohmann::ordered_json figures() const;

 private:
  bool counts_rss_;
  int64_t system_calls_ = 0;
};

}  // namespace elinvar::bench
