#pragma once
// What a device is, for the record of a run: no bit depends on it.
#include <string>

#include "tensor/stream.h"

namespace elinvar {

struct DeviceDescription {
  std::string model = {};    // "NVIDIA H200"; of the CPU ""
  std::string compute = {};  // its capability, "9.0"
  std::string driver = {}, runtime = {};
};
DeviceDescription describe(Device device);

}  // namespace elinvar
