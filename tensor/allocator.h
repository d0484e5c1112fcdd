#pragma once
// A caching allocator for host memory. Freed blocks are kept by size class and handed out again, because the
// page faults of fresh memory cost a CPU trainer more than most of its pointwise operations (`bench ops` shows
// by how much). When what lies idle exceeds the most that was ever in use at once, it goes back to the system
// before more is asked for. Blocks of 2 MB and more lie on huge pages where the system grants them.
//
// Every block is aligned to 64 bytes and followed by kSlack readable bytes, so that a kernel may read (never
// write) one vector past the end. Contents are unspecified. Thread-safe.
#include <cstddef>
#include <cstdint>
#include <memory>

namespace elinvar {

inline constexpr size_t kSlack = 64;

struct AllocatorStats {
  int64_t in_use = 0;        // bytes handed out now
  int64_t peak_in_use = 0;   // since start or reset_peak()
  int64_t cached = 0;        // bytes kept for reuse
  int64_t allocations = 0;   // requests so far
  int64_t system_calls = 0;  // requests that had to go to the system
};

class HostAllocator {
 public:
  static HostAllocator& instance();

  // A block of at least `bytes`; returned to the cache when the last owner lets go. Throws Failure, with what
  // was asked and what is held, when the system has no more.
  std::shared_ptr<void> allocate(size_t bytes);

  AllocatorStats stats() const;
  void reset_peak();
  void release_cached();  // gives all cached blocks back to the system

  ~HostAllocator();

 private:
  HostAllocator();
  void give_back(void* block, size_t size_class) noexcept;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elinvar
