#include "tensor/device_description.h"

namespace elinvar {

DeviceDescription describe_cuda(int index);  // cuda/description.cu

DeviceDescription describe(Device device) {
#ifdef ELINVAR_CUDA
  if (device.kind == DeviceKind::cuda) return describe_cuda(device.index);
#endif
  if (device.kind == DeviceKind::emulated) return {.model = "emulated"};
  return {};
}

}  // namespace elinvar
