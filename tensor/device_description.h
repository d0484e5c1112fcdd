#pragma once
// What a device is, for the record of a run: no bit depends on it.
#include <cstddef>
#include <string>

#include "tensor/stream.h"

namespace elinvar {

struct DeviceDescription {
  std::string model = {};    // "NVIDIA H200"; of the CPU ""
  std::string compute = {};  // its capability, "9.0"
  std::string driver = {}, runtime = {};
  size_t memory = 0;  // bytes
};
DeviceDescription describe(Device device);

std::string why_no_gpu();  // what stands in the way of one: the build, the driver, or that there is none

}  // namespace elinvar
