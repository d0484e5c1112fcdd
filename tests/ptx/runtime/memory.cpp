// Device memory, page-locked memory, and copies. A copy aborts if the device's memory or the page-locked memory of the
// host that it uses is not there when it runs.
#include "tests/ptx/memory.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/ptx/runtime/page_locked.h"
#include "tests/ptx/runtime/queue.h"

using elinvar::ptx::die;
using elinvar::ptx::Memory;
using elinvar::ptx::noted;

namespace {

cudaError_t allocate(void** block, size_t bytes) {
  *block = Memory::instance().allocate(bytes);
  return *block == nullptr ? noted(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t release(void* block) {
  Memory::instance().release(block);
  return cudaSuccess;
}

// The blocks of page-locked memory, and the most bytes that they may have.
struct PageLockedBlocks {
  std::mutex mutex;
  std::map<void*, size_t> bytes;
  size_t held = 0, most = SIZE_MAX;

  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static PageLockedBlocks& instance() {
    static auto* all = new PageLockedBlocks;
    return *all;
  }
};

bool known(const void* begin, size_t bytes) { return Memory::instance().contains(begin, bytes); }

void copy(void* to, const void* from, size_t bytes) {
  if (!known(to, bytes)) die("a copy to memory that is not there");
  if (!known(from, bytes)) die("a copy from memory that is not there");
  std::memcpy(to, from, bytes);
}

}  // namespace

void elinvar::ptx::limit_page_locked(size_t most) {
  PageLockedBlocks& all = PageLockedBlocks::instance();
  const std::lock_guard lock(all.mutex);
  all.most = most;
}

size_t elinvar::ptx::page_locked_bytes() {
  PageLockedBlocks& all = PageLockedBlocks::instance();
  const std::lock_guard lock(all.mutex);
  return all.held;
}

extern "C" {

cudaError_t cudaMalloc(void** block, size_t bytes) { return allocate(block, bytes); }
// Waits, as it does on GPUs; the documentation says that it may.
cudaError_t cudaFree(void* block) {
  if (block != nullptr) elinvar::ptx::scheduled([](elinvar::ptx::Scheduler& scheduler) { scheduler.finish(); });
  return release(block);
}
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) {
  PageLockedBlocks& all = PageLockedBlocks::instance();
  const std::lock_guard lock(all.mutex);
  if (bytes > all.most || all.held > all.most - bytes) return noted(cudaErrorMemoryAllocation);
  const cudaError_t answer = allocate(block, bytes);
  if (answer == cudaSuccess) {
    all.bytes[*block] = bytes;
    all.held += bytes;
  }
  return answer;
}
cudaError_t cudaFreeHost(void* block) {
  PageLockedBlocks& all = PageLockedBlocks::instance();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.bytes.find(block); found != all.bytes.end()) {
    all.held -= found->second;
    all.bytes.erase(found);
  }
  return release(block);
}

// Page-locked memory is read and written when the copy runs. Other memory of the host is read before the call returns
// if it is the source, and the call waits for the copy if it is the destination.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice && !known(from, bytes)) {
    const char* const begin = static_cast<const char*>(from);
    auto staged = std::make_shared<const std::vector<char>>(begin, begin + bytes);
    elinvar::ptx::perform(stream, [=] {
      if (!known(to, bytes)) die("a copy to no device memory");
      std::memcpy(to, staged->data(), bytes);
    });
    return cudaSuccess;
  }
  if (kind == cudaMemcpyDeviceToHost && !known(to, bytes)) {
    elinvar::ptx::perform(stream, [=] {
      if (!known(from, bytes)) die("a copy from no device memory");
      std::memcpy(to, from, bytes);
    });
    return cudaStreamSynchronize(stream);
  }
  elinvar::ptx::perform(stream, [=] { copy(to, from, bytes); });
  return cudaSuccess;
}

}  // extern "C"
