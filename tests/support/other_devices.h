#pragma once
// Returns the devices besides the CPU whose kernels must give its bits: those of the build, of which a test skips the
// ones that the machine lacks, and those of the machine.
#include <vector>

#include "tensor/stream.h"

namespace elinvar::test {

inline std::vector<Device> devices_of_the_build() {
  std::vector<Device> devices;
#ifdef ELINVAR_EMULATION
  devices.push_back({DeviceKind::emulated});
#endif
#ifdef ELINVAR_CUDA
  devices.push_back({DeviceKind::cuda});
#endif
  return devices;
}

inline bool is_here(Device device) {
#ifdef ELINVAR_CUDA
  if (device.kind == DeviceKind::cuda) return gpu_count<Cuda>() > 0;
#endif
  return device.kind != DeviceKind::cuda;
}

inline std::vector<Device> other_devices() {
  std::vector<Device> devices = devices_of_the_build();
  std::erase_if(devices, [](Device device) { return !is_here(device); });
  return devices;
}

}  // namespace elinvar::test
