#pragma once
// Reference points of a GPU: the theoretical peak of its multiprocessors and memory at their nominal clocks, and
// cuBLAS, which is loaded if it is installed.
#include <cstdint>
#include <functional>
#include <string>

#include "tensor/stream.h"
#include "tools/peak/peak.h"

namespace elinvar::bench {

Peak gpu_peak(Device device);
std::string gpu_title(Device device);  // "NVIDIA H200, 132 multiprocessors, driver 13.0"

// Returns the median time of the work that f queues on the device. f runs as often as the clock's resolution requires.
double gpu_seconds(Device device, int repeat, const std::function<void()>& f);

// Returns the same for a float32 product without TF32 by cuBLAS; 0 if there is no cuBLAS.
double cublas_seconds(Device device, int repeat, int64_t m, int64_t n, int64_t k);

}  // namespace elinvar::bench
