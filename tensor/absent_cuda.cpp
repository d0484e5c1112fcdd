// For builds without CUDA.
#include "tensor/absent_device.h"
#include "tensor/device_description.h"
#include "tensor/precision.h"
#include "tensor/profiler_range.h"

namespace elinvar {

template class GpuStream<Cuda>;

template <>
int gpu_count<Cuda>() {
  return 0;
}
template <>
CudaStream& gpu_stream(int) {
  refuse(kAbsent<Cuda>);
}
template <>
CudaStream*& recorded_on() {
  static thread_local CudaStream* none = nullptr;
  return none;
}

DeviceDescription describe_cuda(int) { return {}; }
std::string why_no_gpu() { return "this build has no CUDA"; }
FastProducts fast_products_of_cuda(int) { return {.missing = why_no_gpu()}; }

void push_range(const char*) {}
void pop_range() {}

}  // namespace elinvar
