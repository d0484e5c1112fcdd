#include "tensor/device_memory.h"

namespace elinvar {

AllocatorStats memory_of(Device device) {
  AllocatorStats stats = HostAllocator::instance().stats();
  on_gpu(device, [&](auto& stream) { stats = gpu_memory(stream); });
  return stats;
}

void reset_peak_of(Device device) {
  if (device == Device{}) HostAllocator::instance().reset_peak();
  on_gpu(device, [](auto& stream) { reset_gpu_peak(stream); });
}

}  // namespace elinvar
