#pragma once
// How the memory of this process grows.
#include <algorithm>
#include <cstdint>

#include "tensor/allocator.h"
#include "tensor/heap.h"

namespace elinvar {

class MemoryGrowth {
 public:
  // Returns the growth since this object was made, in bytes.
  int64_t all() const { return std::max<int64_t>(0, resident() - resident_); }
  // Returns the growth without tensors: of code that has run for the first time, and of small objects.
  int64_t without_tensors() const { return std::max<int64_t>(0, all() - (of_tensors() - of_tensors_)); }

 private:
  static int64_t resident() { return static_cast<int64_t>(resident_memory()); }
  static int64_t of_tensors() {
    const AllocatorStats stats = HostAllocator::instance().stats();
    return stats.in_use + stats.cached;
  }
  int64_t resident_ = resident(), of_tensors_ = of_tensors();
};

}  // namespace elinvar
