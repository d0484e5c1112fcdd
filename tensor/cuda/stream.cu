// CUDA streams and the memory of their devices.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/base/failure.h"
#include "tensor/cuda/error.h"
#include "tensor/device_cache.h"
#include "tensor/device_memory.h"
#include "tensor/gpu_stream.h"

namespace elinvar {
namespace {

void* take(size_t bytes) {
  void* segment = nullptr;
  const cudaError_t answer = cudaMalloc(&segment, bytes);
  if (answer == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  require(answer, "allocating memory");
  return segment;
}

// With ELINVAR_DEVICE_CACHE=off in the environment, each block is allocated by the device with exactly the bytes
// requested, so that compute-sanitizer sees accesses beyond it and reads of memory never written.
bool cached() {
  static const bool off = [] {
    const char* const word = std::getenv("ELINVAR_DEVICE_CACHE");
    return word != nullptr && std::string(word) == "off";
  }();
  return !off;
}

// The caches of all streams, by device.
class Caches {
 public:
  static Caches& instance() {
    static auto* all = new Caches;
    return *all;
  }
  void add(int index, const std::shared_ptr<DeviceCache>& cache) {
    const std::lock_guard lock(mutex_);
    caches_[index].push_back(cache);
  }
  template <class F>
  void each(int index, const F& f) {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<DeviceCache>& cache : caches_[index])
      if (const std::shared_ptr<DeviceCache> living = cache.lock()) f(*living);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::weak_ptr<DeviceCache>>> caches_;
};

}  // namespace

template <>
AllocatorStats gpu_memory(CudaStream& stream) {
  AllocatorStats all;
  Caches::instance().each(stream.index(), [&](const DeviceCache& cache) {
    const AllocatorStats stats = cache.stats();
    all.in_use += stats.in_use;
    all.peak_in_use += stats.peak_in_use;
    all.cached += stats.cached;
    all.allocations += stats.allocations;
    all.system_calls += stats.system_calls;
  });
  return all;
}
template <>
void reset_gpu_peak(CudaStream& stream) {
  Caches::instance().each(stream.index(), [](DeviceCache& cache) { cache.reset_peak(); });
}

template <>
CudaStream::GpuStream(int index, bool recording) : index_(index), recording_(recording) {
  require(cudaSetDevice(index), "choosing a device");
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  handle_ = stream;
  // Uses of a free segment by other queues come before what is queued here (side_queue.h, transfer.h), so this waits
  // for the stream alone: while a graph is recorded, which another thread may do, CUDA lets nobody wait for the device.
  // Graphs run on another stream than they are recorded on, and their memory is given back when none is left.
  cache_ = std::make_shared<DeviceCache>(DeviceCache::Source{
      .take = take,
      .give = [](void* segment) { static_cast<void>(cudaFree(segment)); },
      .settle =
          [stream, recording] {
            require(recording ? cudaDeviceSynchronize() : cudaStreamSynchronize(stream), "waiting for the device");
          },
      .keeps = recording});
  Caches::instance().add(index, cache_);
}

template <>
CudaStream::~GpuStream() {
  static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(handle_)));
}

template <>
void CudaStream::synchronize() {
  not_while_recording(*this, "waiting for the device");
  require(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_)), "waiting for the device");
}

template <>
std::shared_ptr<void> CudaStream::allocate(size_t bytes) {
  if (!cached() && !recording_)
    if (void* const own = take(std::max<size_t>(bytes, 1)))
      return {own, [](void* p) { static_cast<void>(cudaFree(p)); }};  // cudaFree waits for the device
  void* block = cache_->allocate(bytes);
  if (block == nullptr) {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = total = 0;
    throw DeviceFull(out_of_memory("cuda:" + std::to_string(index_), bytes, cache_->stats(), free, total));
  }
  return {block, [owner = cache_](void* p) { owner->free(p); }};
}

template <>
void CudaStream::give_back() {
  cache_->give_back();
}

template <>
int gpu_count<Cuda>() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

template <>
CudaStream*& recorded_on() {
  static thread_local CudaStream* stream = nullptr;
  return stream;
}

template <>
CudaStream& gpu_stream(int index) {
  if (CudaStream* const recording = recorded_on<Cuda>()) {
    if (recording->index() != index) refuse_to_record("work on another device");
    return *recording;
  }
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<CudaStream>> streams;
  std::lock_guard lock(mutex);
  std::unique_ptr<CudaStream>& stream = streams[index];
  if (!stream) stream = std::make_unique<CudaStream>(index);
  require(cudaSetDevice(index), "choosing a device");  // the choice is per thread
  return *stream;
}

}  // namespace elinvar
