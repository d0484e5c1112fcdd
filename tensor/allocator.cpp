#include "tensor/allocator.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/heap.h"

namespace elinvar {
namespace {

constexpr size_t kLargest = size_t{1} << 47;         // more than any address space holds
constexpr size_t kLargestOfClass = size_t{1} << 14;  // largest block of the size classes
constexpr size_t kSlab = size_t{1} << 17;            // a piece of the heap that is cut into blocks of one class
constexpr size_t kClasses = 4 * 14;

// Four classes per octave, so at most a quarter of a block is wasted; the smallest has 128 bytes.
size_t class_of(size_t bytes) {
  const size_t octave = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;  // 2^octave < bytes <= 2^(octave+1)
  const size_t quarter = (bytes - 1 - (size_t{1} << octave)) >> (octave - 2);
  return octave * 4 + quarter;
}

// Returns the size of the block for a request: a multiple of 64 within a class, or of the heap's unit.
size_t size_for(size_t bytes) {
  bytes = std::max<size_t>(bytes, 128);
  if (bytes > kLargestOfClass) return (bytes + Heap::kUnit - 1) / Heap::kUnit * Heap::kUnit;
  const size_t octave = static_cast<size_t>(std::bit_width(bytes - 1)) - 1, step = size_t{1} << (octave - 2);
  return ((bytes + step - 1) / step * step + 63) / 64 * 64;
}

}  // namespace

struct HostAllocator::Impl {
  mutable std::mutex mutex;
  Heap heap;
  std::vector<void*> small[kClasses];
  AllocatorStats stats;

  // Requires the mutex.
  void* take(size_t size) {
    if (size > kLargestOfClass) return heap.allocate(size);
    std::vector<void*>& blocks = small[class_of(size)];
    if (blocks.empty()) {
      char* slab = static_cast<char*>(heap.allocate(kSlab));
      if (!slab) return nullptr;
      for (size_t at = kSlab / size; at-- > 0;) blocks.push_back(slab + at * size);
    }
    void* block = blocks.back();
    blocks.pop_back();
    return block;
  }
};

HostAllocator::HostAllocator() : impl_(new Impl) {}

HostAllocator& HostAllocator::instance() {
  // Never destroyed: tensors in static storage may outlive any order of destruction. Leak checkers find it reachable.
  static HostAllocator* allocator = new HostAllocator;
  return *allocator;
}

std::shared_ptr<void> HostAllocator::allocate(size_t bytes) {
  const size_t size = bytes > kLargest - kSlack ? kLargest : size_for(bytes + kSlack);
  void* block = nullptr;
  {
    std::lock_guard lock(impl_->mutex);
    AllocatorStats& stats = impl_->stats;
    const int64_t resident = impl_->heap.resident();
    block = impl_->take(size);
    ++stats.allocations;
    stats.system_calls += impl_->heap.resident() != resident;
    if (block) stats.in_use += static_cast<int64_t>(size);
    stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
  }
  if (!block)
    fail("out of memory: asked for {} bytes while {} are in use; a smaller batch_size or more virtual_ranks needs less",
         bytes, stats().in_use);
  unpoison(block, bytes + kSlack);
  return {block, [this, size](void* b) { give_back(b, size); }};
}

void HostAllocator::give_back(void* block, size_t size) noexcept {
  poison(block, size);
  std::lock_guard lock(impl_->mutex);
  impl_->stats.in_use -= static_cast<int64_t>(size);
  try {
    if (size > kLargestOfClass) impl_->heap.free(block, size);
    else impl_->small[class_of(size)].push_back(block);
  } catch (const std::bad_alloc&) {  // the block is leaked: there is no memory to record it
  }
}

AllocatorStats HostAllocator::stats() const {
  std::lock_guard lock(impl_->mutex);
  AllocatorStats stats = impl_->stats;
  stats.cached = impl_->heap.resident() - stats.in_use;
  return stats;
}

void HostAllocator::reset_peak() {
  std::lock_guard lock(impl_->mutex);
  impl_->stats.peak_in_use = impl_->stats.in_use;
}

void HostAllocator::release_cached() {
  std::lock_guard lock(impl_->mutex);
  impl_->heap.release();
}

}  // namespace elinvar
