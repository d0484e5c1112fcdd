#pragma once
// The blocks of memory that kernels may touch: device memory and page-locked memory, each at its address in the host's
// memory. Thread-safe.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace elinvar::ptx {

class Memory {
 public:
  struct Extent {
    uint64_t begin = 1, end = 0;
    uint64_t version = 0;  // of the Blocks that it is from
  };

  // All blocks at one moment, by address. A launch uses those at its beginning.
  struct Blocks {
    // Whether all of [begin, end) is in one block; `seen` is the last one that the same asker was told of.
    bool contain(uint64_t begin, uint64_t end, Extent& seen) const {
      return (begin >= seen.begin && end <= seen.end && seen.version == version) || find(begin, end, seen);
    }
    bool find(uint64_t begin, uint64_t end, Extent& seen) const;

    uint64_t version = 0;
    std::vector<Extent> extents;
  };

  static Memory& instance();

  // Allocates a block of NaNs, aligned like CUDA's; returns null if there is no memory.
  void* allocate(size_t bytes);
  void release(void* block);
  bool contains(const void* begin, size_t bytes);
  std::shared_ptr<const Blocks> blocks();

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> ends_;     // by the address at which a block begins
  std::shared_ptr<const Blocks> blocks_;  // null if they have changed since
  uint64_t version_ = 0;
};

}  // namespace elinvar::ptx
