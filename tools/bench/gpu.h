#pragma once
// What a GPU is measured against: the most that its multiprocessors and memory could do at the clocks it names, and
// cuBLAS, which is loaded where it is installed.
#include <cstdint>
#include <functional>
#include <string>

#include "tensor/stream.h"
#include "tools/peak/peak.h"

namespace elinvar::bench {

Peak gpu_peak(Device device);
std::string gpu_title(Device device);  // "NVIDIA H200, 132 multiprocessors, driver 13.0"

// The median time of what f queues on the device. It is queued often enough for the clock to be right.
double gpu_seconds(Device device, int repeat, const std::function<void()>& f);

// That of a product in float32, without TF32, by cuBLAS; 0 if there is no cuBLAS.
double cublas_seconds(Device device, int repeat, int64_t m, int64_t n, int64_t k);

}  // namespace elinvar::bench
