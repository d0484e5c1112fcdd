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
    description.compute = std::to_string(properties.major) + "." + std::to_string(properties.minor);
  }
  if (cudaDriverGetVersion(&driver) == cudaSuccess) description.driver = version_text(driver);
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) description.runtime = version_text(runtime);
  return description;
}

}  // namespace elinvar
