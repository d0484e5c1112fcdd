#include "tensor/device_description.h"

namespace elinvar {

DeviceDescription describe_cuda(int index);  // cuda/description.cu
std::string why_no_cuda();

DeviceDescription describe(Device device) {
#ifdef ELINVAR_CUDA
  if (device.kind == DeviceKind::cuda) return describe_cuda(device.index);
#endif
  if (device.kind == DeviceKind::emulated) return {.model = "emulated"};
  return {};
}

std::string why_no_gpu() {
#ifdef ELINVAR_CUDA
  return why_no_cuda();
#else
  return "this build has no CUDA";
#endif
}

}  // namespace elinvar
