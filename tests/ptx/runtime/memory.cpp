// Device memory, page-locked memory, and copies. A copy outside of the device's memory aborts.
#include "tests/ptx/memory.h"

#include <cuda_runtime.h>

#include <cstring>

#include "tests/ptx/runtime/queue.h"

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

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** block, size_t bytes) { return allocate(block, bytes); }
cudaError_t cudaFree(void* block) { return release(block); }
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) { return allocate(block, bytes); }
cudaError_t cudaFreeHost(void* block) { return release(block); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  elinvar::ptx::perform(stream, [=] {
    Memory& memory = Memory::instance();
    if (kind != cudaMemcpyDeviceToHost && !memory.contains(to, bytes)) elinvar::ptx::die("a copy to no device memory");
    if (kind != cudaMemcpyHostToDevice && !memory.contains(from, bytes))
      elinvar::ptx::die("a copy from no device memory");
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
