#pragma once
// A GPU's queue of work: kernels and copies run in the order in which they were given, after the call that gave them.
// GpuStream<Cuda> is a CUDA stream. GpuStream<Emulated> exists where the tests are built: it runs the text of the same
// kernels on the CPU (tests/emulation/), so that their bits are checked on machines without a GPU.
#include <cstddef>
#include <cstdint>
#include <memory>

namespace elinvar {

struct Cuda {};
struct Emulated {};

template <class Backend>
class GpuStream {
 public:
  explicit GpuStream(int index);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  // Device memory, contents unspecified, from a cache; what was freed serves whatever is queued after. Throws Failure
  // with what was asked and what is held when the device has no more.
  std::shared_ptr<void> allocate(size_t bytes);

  void copy_in(void* device, const void* host, size_t bytes);   // `host` may change when the call returns
  void copy_out(void* host, const void* device, size_t bytes);  // waits until the bytes are there
  void synchronize();                                           // waits for all that was queued; throws Failure

  void* handle() const { return handle_; }  // the cudaStream_t

 private:
  struct Memory;
  int index_;
  void* handle_ = nullptr;
  std::shared_ptr<Memory> memory_;
};

using CudaStream = GpuStream<Cuda>;
using EmulatedStream = GpuStream<Emulated>;

// How many devices there are; 0 where no driver is found.
template <class Backend>
int gpu_count();
template <>
int gpu_count<Cuda>();
template <>
int gpu_count<Emulated>();

// The stream of this process on the device of that index. Throws UsageError where there is none.
template <class Backend>
GpuStream<Backend>& gpu_stream(int index);
template <>
CudaStream& gpu_stream(int index);
template <>
EmulatedStream& gpu_stream(int index);

}  // namespace elinvar
