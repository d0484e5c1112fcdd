// The emulated device: host memory, kernels that have run when a call returns.
#include <cstring>

#include "tensor/allocator.h"
#include "tensor/check.h"
#include "tensor/gpu_stream.h"

namespace elinvar {

template <>
struct EmulatedStream::Memory {};

template <>
EmulatedStream::GpuStream(int index) : index_(index) {}
template <>
EmulatedStream::~GpuStream() {}

template <>
std::shared_ptr<void> EmulatedStream::allocate(size_t bytes) {
  std::shared_ptr<void> block = HostAllocator::instance().allocate(bytes);
  if (bytes > 0) std::memset(block.get(), 0xff, bytes);  // NaN, until somebody writes
  return block;
}
template <>
void EmulatedStream::copy_in(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
template <>
void EmulatedStream::copy_out(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}
template <>
void EmulatedStream::synchronize() {}

template <>
int gpu_count<Emulated>() {
  return 1;
}

template <>
EmulatedStream& gpu_stream(int index) {
  check(index == 0, "[device] there is one emulated device, number 0, got {}", index);
  static EmulatedStream stream(0);
  return stream;
}

}  // namespace elinvar
