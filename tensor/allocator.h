#pragma once
// A caching allocator for host memory. It reuses freed blocks, because page faults of fresh memory cost a CPU trainer
// more than most of its pointwise operations. Small blocks are cached by size class; all others are pieces of one heap
// (tensor/heap.h), which merges free neighbours, so that a step holds at most little more than it uses, and a repeated
// step makes no system calls.
//
// Every block is aligned to 64 bytes and followed by kSlack readable bytes, so that a kernel may read (never write) one
// vector past the end. Contents are unspecified. Thread-safe. Address sanitizers detect accesses outside the blocks in
// use.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/stream.h"

namespace elinvar {

inline constexpr size_t kSlack = 64;

struct AllocatorStats {
  int64_t in_use = 0;        // bytes handed out now
  int64_t peak_in_use = 0;   // since start or reset_peak()
  int64_t cached = 0;        // bytes kept for reuse
  int64_t allocations = 0;   // requests so far
  int64_t system_calls = 0;  // requests that needed new memory from the system
};

class HostAllocator {
 public:
  static HostAllocator& instance();

  // Returns a block of at least `bytes`, which goes back to the cache with its last owner. Throws Failure, with the
  // size requested and the memory held, if the system has no more.
  std::shared_ptr<void> allocate(size_t bytes);

  AllocatorStats stats() const;
  void reset_peak();
  void release_cached();  // returns whole free pages to the system

 private:
  HostAllocator();
  void give_back(void* block, size_t size) noexcept;
  struct Impl;
  Impl* impl_;
};

// Allocates a tensor's memory on the device of a stream.
inline std::shared_ptr<void> allocate(CpuStream&, size_t bytes) { return HostAllocator::instance().allocate(bytes); }
template <class B>
std::shared_ptr<void> allocate(GpuStream<B>& stream, size_t bytes) {
  return stream.allocate(bytes);
}

}  // namespace elinvar
