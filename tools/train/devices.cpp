// `train devices`: lists the devices of this machine, one per line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tensor/base/threads.h"
#include "tensor/device_description.h"
#include "tensor/isa.h"
#include "tools/train/commands.h"
#include "tools/training/environment.h"
#include "tools/training/gpu_assignment.h"

namespace elinvar {
namespace {

int devices() {
  fmt::print("{:<8} {}; {} threads, {}\n", "cpu", cpu_model(), usable_threads(), name_of(available_isas().back()));
  for (int i = 0; i < gpus_here(); ++i) {
    const Device device{DeviceKind::cuda, static_cast<int8_t>(i)};
    const DeviceDescription gpu = describe(device);
    constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
    fmt::print("{:<8} {}; compute capability {}, {:.1f} GiB, driver for CUDA {}, runtime {}\n", to_string(device),
               gpu.model, gpu.compute, static_cast<double>(gpu.memory) / kGiB, gpu.driver, gpu.runtime);
  }
  if (gpus_here() == 0) fmt::print("{:<8} none: {}\n", "cuda", why_no_gpu());
  return 0;
}

}  // namespace

Command add_devices(CLI::App& program) {
  return {program.add_subcommand("devices", "what this machine computes with"), devices};
}

}  // namespace elinvar
