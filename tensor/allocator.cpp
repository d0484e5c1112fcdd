#include "tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tensor/check.h"

namespace elinvar {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargest = size_t{1} << 47;  // more than any address space holds
constexpr size_t kClasses = 4 * 48;

// Four classes an octave, so at most a quarter of a block is waste; the smallest holds 128 bytes.
size_t class_of(size_t bytes) {
  bytes = std::max<size_t>(bytes, 128);
  const size_t octave = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;  // 2^octave < bytes <= 2^(octave+1)
  const size_t quarter = (bytes - 1 - (size_t{1} << octave)) >> (octave - 2);
  return octave * 4 + quarter;
}

size_t bytes_of(size_t size_class) {
  const size_t octave = size_class / 4;
  return (size_t{1} << octave) + (size_class % 4 + 1) * (size_t{1} << (octave - 2));
}

}  // namespace

struct HostAllocator::Impl {
  mutable std::mutex mutex;
  std::vector<void*> free[kClasses];
  AllocatorStats stats;

  void* system_allocate(size_t bytes) {
    const bool huge = bytes >= kHugePage;
    const size_t alignment = huge ? kHugePage : 64;
    void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p && huge) madvise(p, bytes, MADV_HUGEPAGE);  // a hint: without it the memory works as well, slower
    return p;
  }

  // A cached block, counted as in use, or null if the system must be asked for one.
  void* take(size_t c, int64_t size) {
    std::lock_guard lock(mutex);
    ++stats.allocations;
    stats.in_use += size;
    stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
    if (!free[c].empty()) {
      void* p = free[c].back();
      free[c].pop_back();
      stats.cached -= size;
      return p;
    }
    ++stats.system_calls;
    if (stats.cached > stats.peak_in_use) release_cached();
    return nullptr;
  }

  void forget(int64_t size) {
    std::lock_guard lock(mutex);
    stats.in_use -= size;
  }

  void release_cached() {  // with the mutex held
    for (size_t c = 0; c < kClasses; ++c) {
      for (void* p : free[c]) std::free(p);
      if (!free[c].empty()) stats.cached -= static_cast<int64_t>(free[c].size() * bytes_of(c));
      free[c].clear();
    }
  }
};

HostAllocator::HostAllocator() : impl_(std::make_unique<Impl>()) {}
HostAllocator::~HostAllocator() { release_cached(); }

HostAllocator& HostAllocator::instance() {
  // Never destroyed: tensors in static storage may outlive any order of destruction. Leak checkers see it as reachable.
  static HostAllocator* allocator = new HostAllocator;
  return *allocator;
}

std::shared_ptr<void> HostAllocator::allocate(size_t bytes) {
  const auto out_of_memory = [&] {
    fail("out of memory: asked for {} bytes while {} are in use; a smaller batch_size or more virtual_ranks needs less",
         bytes, stats().in_use);
  };
  if (bytes > kLargest - kSlack) out_of_memory();
  const size_t c = class_of(bytes + kSlack);
  const auto size = static_cast<int64_t>(bytes_of(c));
  void* p = impl_->take(c, size);
  if (!p) p = impl_->system_allocate(static_cast<size_t>(size));
  if (!p) {  // once more without what lies idle
    release_cached();
    p = impl_->system_allocate(static_cast<size_t>(size));
  }
  if (!p) {
    impl_->forget(size);
    out_of_memory();
  }
  return {p, [this, c](void* block) { give_back(block, c); }};
}

void HostAllocator::give_back(void* block, size_t size_class) noexcept {
  std::lock_guard lock(impl_->mutex);
  const auto size = static_cast<int64_t>(bytes_of(size_class));
  impl_->stats.in_use -= size;
  impl_->stats.cached += size;
  impl_->free[size_class].push_back(block);
}

AllocatorStats HostAllocator::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

void HostAllocator::reset_peak() {
  std::lock_guard lock(impl_->mutex);
  impl_->stats.peak_in_use = impl_->stats.in_use;
}

void HostAllocator::release_cached() {
  std::lock_guard lock(impl_->mutex);
  impl_->release_cached();
}

}  // namespace elinvar
