#pragma once
// The memory that a case needs, by the allocator's count and by the kernel's.
#include <cstdint>
#include <nlohmann/json.hpp>

namespace elinvar::bench {

class MemoryWatch {
 public:
  MemoryWatch();  // gives idle memory back and starts both counts anew
  void steady();  // from here on nothing should be asked of the system
  // in_use_mb: the most that tensors took; rss_mb: the most that the process held (VmHWM, 0 where the kernel does not
  // let it start anew); fresh: requests since steady() that needed memory of the system.
  nlohmann::ordered_json figures() const;

 private:
  bool counts_rss_;
  int64_t system_calls_ = 0;
};

}  // namespace elinvar::bench
