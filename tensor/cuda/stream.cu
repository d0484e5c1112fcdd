// CUDA streams and a caching allocator of device memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/failure.h"
#include "tensor/gpu_stream.h"

namespace elinvar {
namespace {

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Failure(std::string("[cuda] ") + what + ": " + cudaGetErrorString(error));
}

constexpr size_t kUnit = 512;

}  // namespace

void check_launch(const char* name, int error) {
  require(static_cast<cudaError_t>(error), (std::string("kernel ") + name).c_str());
}

// Blocks by size, rounded up to kUnit. One stream uses the memory of a device, so that a block may be handed out again
// as soon as it was let go: what wrote to it before is queued before.
template <>
struct CudaStream::Memory {
  std::mutex mutex;
  std::multimap<size_t, void*> cached;
  size_t held = 0, in_use = 0;

  void release() {
    for (const auto& [bytes, block] : cached) {
      static_cast<void>(cudaFree(block));
      held -= bytes;
    }
    cached.clear();
  }
};

template <>
CudaStream::GpuStream(int index) : index_(index), memory_(std::make_shared<Memory>()) {
  require(cudaSetDevice(index), "choosing a device");
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  handle_ = stream;
}

template <>
CudaStream::~GpuStream() {
  static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(handle_)));
}

template <>
void CudaStream::synchronize() {
  require(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_)), "waiting for the device");
}

template <>
std::shared_ptr<void> CudaStream::allocate(size_t wanted) {
  Memory& memory = *memory_;
  const size_t bytes = std::max<size_t>(1, (wanted + kUnit - 1) / kUnit) * kUnit;
  std::lock_guard lock(memory.mutex);
  void* block = nullptr;
  size_t size = bytes;
  const auto found = memory.cached.lower_bound(bytes);
  if (found != memory.cached.end() && found->first <= bytes + bytes / 8) {
    size = found->first;
    block = found->second;
    memory.cached.erase(found);
  } else {
    cudaError_t error = cudaMalloc(&block, bytes);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      synchronize();
      memory.release();
      error = cudaMalloc(&block, bytes);
    }
    if (error != cudaSuccess)
      throw Failure("[cuda] no memory for " + std::to_string(bytes) + " bytes beside " + std::to_string(memory.in_use) +
                    " in use: a smaller batch or more virtual ranks (run.virtual_ranks) need less");
    memory.held += bytes;
  }
  memory.in_use += size;
  return {block, [size, owner = memory_](void* p) {
            std::lock_guard guard(owner->mutex);
            owner->in_use -= size;
            owner->cached.emplace(size, p);
          }};
}

template <>
void CudaStream::copy_in(void* device, const void* host, size_t bytes) {
  const auto stream = static_cast<cudaStream_t>(handle_);
  require(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "copying to the device");
  require(cudaStreamSynchronize(stream), "copying to the device");
}

template <>
void CudaStream::copy_out(void* host, const void* device, size_t bytes) {
  const auto stream = static_cast<cudaStream_t>(handle_);
  require(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "copying from the device");
  require(cudaStreamSynchronize(stream), "copying from the device");
}

template <>
int gpu_count<Cuda>() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

template <>
CudaStream& gpu_stream(int index) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<CudaStream>> streams;
  std::lock_guard lock(mutex);
  std::unique_ptr<CudaStream>& stream = streams[index];
  if (!stream) stream = std::make_unique<CudaStream>(index);
  require(cudaSetDevice(index), "choosing a device");  // each thread has a choice of its own
  return *stream;
}

}  // namespace elinvar
