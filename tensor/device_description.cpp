#include "tensor/device_description.h"

namespace elinvar {

DeviceDescription describe(Device device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return {};
    case DeviceKind::cuda:
      return describe_cuda(device.index);
    case DeviceKind::emulated:
      return {.model = "emulated"};
  }
  return {};
}

}  // namespace elinvar
