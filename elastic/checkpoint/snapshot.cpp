#include "elastic/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/allocator.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmallestPage = 4096;

}  // namespace

int64_t SnapshotMemory::room_for(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t SnapshotMemory::bytes_for(const StateDict& part) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : part) bytes += room_for(tensor.bytes());
  return bytes;
}

void SnapshotMemory::prepare(int64_t bytes) {
  {
    const std::lock_guard lock(kept_->mutex);
    if (kept_->promised >= bytes) return;
  }
  Block block{.memory = {}, .bytes = bytes};
  try {
    block.memory = HostAllocator::instance().allocate(static_cast<size_t>(bytes));
  } catch (const Failure&) {
    return;
  }
  auto* at = static_cast<volatile char*>(block.memory.get());
  for (int64_t i = 0; i < bytes; i += kSmallestPage) at[i] = 0;
  const std::lock_guard lock(kept_->mutex);
  if (block.bytes <= kept_->promised) return;
  kept_->promised = block.bytes;
  std::swap(kept_->free, block);
}

StateDict SnapshotMemory::copy(const StateDict& part) {
  const int64_t bytes = bytes_for(part);
  Block block;
  {
    const std::lock_guard lock(kept_->mutex);
    if (kept_->free.memory && kept_->free.bytes >= bytes) block = std::exchange(kept_->free, {});
  }
  if (!block.memory) block = {HostAllocator::instance().allocate(static_cast<size_t>(bytes)), bytes};
  char* at = static_cast<char*>(block.memory.get());
  const auto give_back = [kept = kept_, block](const void*) mutable {
    const std::lock_guard lock(kept->mutex);
    if (kept->free.bytes >= block.bytes) return;
    kept->promised = std::max(kept->promised, block.bytes);
    std::swap(kept->free, block);
  };
  const std::shared_ptr<const void> owner(at, give_back);
  StateDict copy;
  for (const auto& [name, tensor] : part) {
    const Tensor dense = tensor.to(Device{}).to_contiguous();
    std::memcpy(at, dense.raw(), static_cast<size_t>(dense.bytes()));
    copy.emplace(name, Tensor::over(owner, at, tensor.shape(), tensor.dtype()));
    at += room_for(tensor.bytes());
  }
  return copy;
}

}  // namespace elinvar
