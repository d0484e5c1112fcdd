// Device memory, page-locked memory, and copies. A copy aborts if the device's memory or the page-locked memory of the
// host that it uses is not there when it runs.
#include "tests/ptx/memory.h"

#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <vector>

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

bool known(const void* begin, size_t bytes) { return Memory::instance().contains(begin, bytes); }

void copy(void* to, const void* from, size_t bytes) {
  if (!known(to, bytes)) die("a copy to memory that is not there");
  if (!known(from, bytes)) die("a copy from memory that is not there");
  std::memcpy(to, from, bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** block, size_t bytes) { return allocate(block, bytes); }
// Waits, as it does on GPUs; the documentation says that it may.
cudaError_t cudaFree(void* block) {
  if (block != nullptr) elinvar::ptx::scheduled([](elinvar::ptx::Scheduler& scheduler) { scheduler.finish(); });
  return release(block);
}
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) { return allocate(block, bytes); }
cudaError_t cudaFreeHost(void* block) { return release(block); }

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
