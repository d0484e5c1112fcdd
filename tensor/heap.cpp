#include "tensor/heap.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <new>

#include "tensor/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace elinvar {
namespace {

constexpr size_t kPage = size_t{2} << 20;  // a huge page
constexpr size_t kGrowth = 32 * kPage;

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
void poison(const void* begin, size_t bytes) { __asan_poison_memory_region(begin, bytes); }
void unpoison(const void* begin, size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
void poison(const void*, size_t) {}
void unpoison(const void*, size_t) {}
#endif

size_t machine_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

Heap::Heap() {
  // Reserves twice the machine's memory, to allow for fragmentation. Under an address limit, leaves half of it for
  // threads and libraries. If the reservation fails, tries half as much, and so on.
  size_t most = 2 * machine_memory();
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) most = std::min(most, limit.rlim_cur / 2);
  for (reserved_bytes_ = round_up(most, kPage); reserved_bytes_ > 2 * kPage; reserved_bytes_ /= 2) {
    reserved_ = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved_ != MAP_FAILED) break;
  }
  if (reserved_ == MAP_FAILED) fail("out of memory: no addresses for tensors");
  const auto address = reinterpret_cast<uintptr_t>(reserved_);
  base_ = top_ = usable_ = static_cast<char*>(reserved_) + (round_up(address, kPage) - address);
  limit_ = static_cast<char*>(reserved_) + reserved_bytes_;
  madvise(reserved_, reserved_bytes_, MADV_HUGEPAGE);  // a hint: without it the memory works as well, but slower
}

Heap::~Heap() {
  unpoison(base_, static_cast<size_t>(usable_ - base_));
  munmap(reserved_, reserved_bytes_);
}

// If there is no memory for the entries, the range is not recorded and never reused.
void Heap::insert(char* begin, size_t bytes) {
  const auto at = free_.emplace(begin, bytes).first;
  try {
    by_size_.emplace(bytes, begin);
  } catch (const std::bad_alloc&) {
    free_.erase(at);
    throw;
  }
}

void Heap::erase(std::map<char*, size_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  free_.erase(range);
}

void Heap::touch(const char* begin, size_t bytes) {
  const size_t first = static_cast<size_t>(begin - base_) / kPage,
               last = (static_cast<size_t>(begin - base_) + bytes - 1) / kPage;
  if (touched_.size() <= last) touched_.resize(last + 1, 0);
  for (size_t page = first; page <= last; ++page) {
    if (touched_[page] == 0) resident_ += static_cast<int64_t>(kPage);
    touched_[page] = 1;
  }
}

void* Heap::allocate(size_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, nullptr});
  if (fit != by_size_.end()) {
    const auto [size, begin] = *fit;
    erase(free_.find(begin));
    if (size > bytes) insert(begin + bytes, size - bytes);
    touch(begin, bytes);
    return begin;
  }
  char* begin = top_;  // or the free range that ends there
  if (!free_.empty() && std::prev(free_.end())->first + std::prev(free_.end())->second == top_)
    begin = std::prev(free_.end())->first;
  if (bytes > static_cast<size_t>(limit_ - begin)) return nullptr;
  if (begin + bytes > usable_) {
    const size_t growth = std::min(round_up(static_cast<size_t>(begin + bytes - usable_), kGrowth),
                                   static_cast<size_t>(limit_ - usable_));
    if (mprotect(usable_, growth, PROT_READ | PROT_WRITE) != 0) return nullptr;
    poison(usable_, growth);
    usable_ += growth;
  }
  if (begin != top_) erase(std::prev(free_.end()));
  top_ = begin + bytes;
  touch(begin, bytes);
  return begin;
}

void Heap::free(void* piece, size_t bytes) {
  char* begin = static_cast<char*>(piece);
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    invariant(before->first + before->second <= begin, "a piece is returned once");
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      erase(before);
    }
  }
  if (next != free_.end() && begin + bytes == next->first) {
    bytes += next->second;
    erase(next);
  }
  insert(begin, bytes);
}

void Heap::release() {
  for (const auto& [begin, bytes] : free_) {
    const size_t first = round_up(static_cast<size_t>(begin - base_), kPage) / kPage,
                 end = (static_cast<size_t>(begin - base_) + bytes) / kPage;
    if (first >= end || madvise(base_ + first * kPage, (end - first) * kPage, MADV_DONTNEED) != 0) continue;
    for (size_t page = first; page < end; ++page) {
      resident_ -= touched_[page] != 0 ? static_cast<int64_t>(kPage) : 0;
      touched_[page] = 0;
    }
  }
}

}  // namespace elinvar
