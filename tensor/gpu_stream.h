#pragma once
// A GPU's queue of work. Kernels and copies run asynchronously, in the order of the calls. GpuStream<Cuda> is a CUDA
// stream. GpuStream<Emulated> exists in builds with tests: it runs the source of the same kernels on the CPU
// (tests/emulation/), so that their bits are checked on machines without a GPU.
#include <cstddef>
#include <cstdint>
#include <memory>

namespace elinvar {

class DeviceCache;

struct Cuda {};
struct Emulated {};

template <class Backend>
class GpuStream {
 public:
  // A recording stream belongs to a graph (tensor/graph.h) and stores calls instead of running them. Copies from and to
  // the host and waiting throw Failure on it. It has its own memory.
  explicit GpuStream(int index, bool recording = false);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  // Allocates device memory from a cache; contents are unspecified. Freed memory is reused by work that is queued
  // later. Throws Failure, with the size requested and the memory held, if the device has no more.
  std::shared_ptr<void> allocate(size_t bytes);
  void give_back();  // gives whole free segments of the cache back to the device

  void copy_in(void* device, const void* host, size_t bytes);   // `host` may change when the call returns
  void copy_out(void* host, const void* device, size_t bytes);  // waits until the bytes are there
  void synchronize();                                           // waits for all queued work; throws Failure

  void* handle() const { return handle_; }  // the cudaStream_t
  int index() const { return index_; }
  bool recording() const { return recording_; }
  DeviceCache& cache() const { return *cache_; }

 private:
  int index_;
  bool recording_;
  void* handle_ = nullptr;
  std::shared_ptr<DeviceCache> cache_;
};

[[noreturn]] void refuse_to_record(const char* what);  // throws Failure: a graph cannot contain it
template <class Backend>
void not_while_recording(const GpuStream<Backend>& stream, const char* what) {
  if (stream.recording()) refuse_to_record(what);
}

using CudaStream = GpuStream<Cuda>;
using EmulatedStream = GpuStream<Emulated>;

// Returns the number of devices; 0 if no driver is found.
template <class Backend>
int gpu_count();
template <>
int gpu_count<Cuda>();
template <>
int gpu_count<Emulated>();

// Returns the stream of this process on device `index`. In a thread that records a graph or uses a side queue, returns
// that stream instead, and throws Failure for another device. Throws UsageError if there is no such device.
template <class Backend>
GpuStream<Backend>& gpu_stream(int index);
template <>
CudaStream& gpu_stream(int index);
template <>
EmulatedStream& gpu_stream(int index);

// The stream of a graph or side queue (side_queue.h) to which this thread's calls go instead; may be null.
template <class Backend>
GpuStream<Backend>*& recorded_on();
template <>
CudaStream*& recorded_on();
template <>
EmulatedStream*& recorded_on();

}  // namespace elinvar
