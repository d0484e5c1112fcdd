#pragma once
// A GPU's queue of work: kernels and copies run in the order in which they were given, after the call that gave them.
// GpuStream<Cuda> is a CUDA stream. GpuStream<Emulated> exists where the tests are built: it runs the text of the same
// kernels on the CPU (tests/emulation/), so that their bits are checked on machines without a GPU.
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
  // A recording one is for graphs (tensor/graph.h): what is called on it is kept for later instead of done, so it has
  // no copies from and to the host, and is not waited for; Failure says so. Its memory is its own.
  explicit GpuStream(int index, bool recording = false);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  // Device memory, contents unspecified, from a cache; what was freed serves whatever is queued after. Throws Failure
  // with what was asked and what is held when the device has no more.
  std::shared_ptr<void> allocate(size_t bytes);
  void give_back();  // to the device, what of the cache is whole and free

  void copy_in(void* device, const void* host, size_t bytes);   // `host` may change when the call returns
  void copy_out(void* host, const void* device, size_t bytes);  // waits until the bytes are there
  void synchronize();                                           // waits for all that was queued; throws Failure

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

[[noreturn]] void refuse_to_record(const char* what);  // Failure: a graph cannot have it
template <class Backend>
void not_while_recording(const GpuStream<Backend>& stream, const char* what) {
  if (stream.recording()) refuse_to_record(what);
}

using CudaStream = GpuStream<Cuda>;
using EmulatedStream = GpuStream<Emulated>;

// How many devices there are; 0 where no driver is found.
template <class Backend>
int gpu_count();
template <>
int gpu_count<Cuda>();
template <>
int gpu_count<Emulated>();

// The stream of this process on the device of that index; in a thread whose calls go elsewhere, as it records a graph
// or uses a side queue, that one, and Failure for another device. Throws UsageError where there is none.
template <class Backend>
GpuStream<Backend>& gpu_stream(int index);
template <>
CudaStream& gpu_stream(int index);
template <>
EmulatedStream& gpu_stream(int index);

// The stream that this thread's calls go to instead, recorded or to run beside it (side_queue.h); null: there is none.
template <class Backend>
GpuStream<Backend>*& recorded_on();
template <>
CudaStream*& recorded_on();
template <>
EmulatedStream*& recorded_on();

}  // namespace elinvar
