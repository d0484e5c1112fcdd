#pragma once
// bench data: how fast images are read, decoded and augmented, and whether training waits for them.
//
//   decode              to bytes in three channels
//   train               and a random part scaled to 224 x 224, flipped, normalised
//   train jitter        and colour jitter of 0.4, 0.4, 0.4 and 0.1
//   train mixup         and mixup
//   eval                scaled to 256, the centre of 224 x 224, normalised
//   step                training steps of ResNet-50 with one reader thread; "waited" is the mean and the longest time
//                       that steps after the first waited for their batch, in ms
//
// N threads are N - 1 readers and the thread that requests batches; for `step`, N threads compute.
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> data_names();

// `path`: a folder or .tar of images with any names. Times `repeat` times 32 batches of 16 together; for `step`,
// `repeat` steps.
void run_data(const std::string& name, const std::string& path, int threads, int repeat, Report& report);

}  // namespace elinvar::bench
