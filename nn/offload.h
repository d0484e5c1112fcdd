#pragma once
// Where an optimiser's state is kept: on the device of the parameters, in the host's memory or in files. The inputs of
// recomputed blocks can be kept there, too (nn/input_store.h). The place decides no bit: updates have the same kernels
// (nn/update_parts.h).
#include <cstdint>
#include <filesystem>
#include <string>

#include "tensor/tensor.h"

namespace elinvar {

struct Offload {
  enum class To { none, host, file };
  To to = To::none;                   // host: page-locked memory of the host, for parameters on a GPU
  std::filesystem::path folder = {};  // of files; one that is in memory (tmpfs) spares none
  bool inputs = false;                // those of recomputed blocks, too
  int64_t part = int64_t{1} << 22;    // elements of each state tensor that an update brings to the device at once

  // Whether state of parameters on this device is not simply there.
  bool elsewhere(Device device) const { return to == To::file || (to == To::host && device != Device{}); }
  // Returns zeros for the state of parameters on this device. Throws Failure if there is no room.
  Tensor zeros(const Shape& shape, DType dtype, Device device) const;
};

// Reads the option --offload of a worker on this device: "none", "host", "file" (in the temporary folder) or
// "file:FOLDER"; ",inputs" may follow, but for "none". Throws UsageError for other words, for a folder that is not
// there, and for "host" on the CPU.
Offload parse_offload(const std::string& text, Device device);

}  // namespace elinvar
