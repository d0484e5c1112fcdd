#include "tests/ptx/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace elinvar::ptx {
namespace {

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

}  // namespace

// Never destroyed: tensors in static storage may outlive any order of destruction.
Memory& Memory::instance() {
  static auto* all = new Memory;
  return *all;
}

void* Memory::allocate(size_t bytes) {
  constexpr size_t kAlignment = 512;
  const size_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  void* const block = std::aligned_alloc(kAlignment, room);
  if (block == nullptr) return nullptr;
  std::memset(block, 0xff, room);
  const std::lock_guard lock(mutex_);
  ends_[address(block)] = address(block) + bytes;
  blocks_ = nullptr;
  return block;
}

void Memory::release(void* block) {
  if (block == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    ends_.erase(address(block));
    blocks_ = nullptr;
  }
  std::free(block);
}

bool Memory::contains(const void* begin, size_t bytes) {
  Extent seen;
  return blocks()->find(address(begin), address(begin) + bytes, seen);
}

std::shared_ptr<const Memory::Blocks> Memory::blocks() {
  const std::lock_guard lock(mutex_);
  if (blocks_) return blocks_;
  auto made = std::make_shared<Blocks>();
  made->version = ++version_;
  for (const auto& [begin, end] : ends_) made->extents.push_back({begin, end, version_});
  return blocks_ = made;
}

bool Memory::Blocks::find(uint64_t begin, uint64_t end, Extent& seen) const {
  auto block = std::ranges::upper_bound(extents, begin, {}, &Extent::begin);
  if (block == extents.begin() || end > (--block)->end) return false;
  seen = *block;
  return true;
}

}  // namespace elinvar::ptx
