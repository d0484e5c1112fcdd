#pragma once
// Describes a device for the record of a run. No bit of a result depends on it.
#include <cstddef>
#include <string>

#include "tensor/stream.h"

namespace elinvar {

struct DeviceDescription {
  std::string model = {};    // "NVIDIA H200"; "" for the CPU
  std::string compute = {};  // compute capability, "9.0"
  std::string driver = {}, runtime = {};
  size_t memory = 0;  // bytes
};
DeviceDescription describe(Device device);
DeviceDescription describe_cuda(int index);

std::string why_no_gpu();  // why no GPU can be used: the build, the driver, or no device

// Throws UsageError unless parse_device (tensor/stream.h) knows the word, which may name a GPU that is not there.
void check_device_name(const std::string& text);

}  // namespace elinvar
