#include <cuda_runtime.h>

#include "tensor/device_description.h"

namespace elinvar {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

DeviceDescription describe_cuda(int index) {
  DeviceDescription description;
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0;
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
    description.model = properties.name;
    description.memory = properties.totalGlobalMem;
    description.compute = std::to_string(properties.major) + "." + std::to_string(properties.minor);
  }
  if (cudaDriverGetVersion(&driver) == cudaSuccess) description.driver = version_text(driver);
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) description.runtime = version_text(runtime);
  static_cast<void>(cudaGetLastError());  // a failed query must not count as a failure of the next launch
  return description;
}

std::string why_no_gpu() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  if (answer == cudaSuccess) return count == 0 ? "the driver knows no GPU" : "";
  std::string text = cudaGetErrorString(answer);
  if (cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess &&
      driver < runtime)
    text += driver == 0 ? " (no driver is installed)"
                        : " (the driver is for CUDA " + version_text(driver) + ", this build needs " +
                              version_text(runtime) + ")";
  return text;
}

}  // namespace elinvar
