#pragma once
// The memory of tensors on a device, as its allocators count it.
#include "tensor/allocator.h"
#include "tensor/stream.h"

namespace elinvar {

// On a GPU: of all streams and of graphs. Each of them keeps the memory that it has taken, so their peaks are added up.
AllocatorStats memory_of(Device device);
void reset_peak_of(Device device);

// The same for the streams of one kind of GPU.
template <class B>
AllocatorStats gpu_memory(GpuStream<B>& stream);
template <class B>
void reset_gpu_peak(GpuStream<B>& stream);
template <>
AllocatorStats gpu_memory(CudaStream& stream);
template <>
void reset_gpu_peak(CudaStream& stream);
template <>
AllocatorStats gpu_memory(EmulatedStream& stream);
template <>
void reset_gpu_peak(EmulatedStream& stream);

}  // namespace elinvar
