#pragma once
// bench data: how fast images are read, decoded and augmented, and whether training waits for them.
//
//   decode              to bytes in three channels
//   train               and a random part scaled to 224 x 224, flipped, normalised
//   train jitter        and colour jitter of 0.4, 0.4, 0.4 and 0.1
//   train mixup         and mixup
//   eval                scaled to 256, the centre of 224 x 224, normalised
//   step                training steps of ResNet-50 on them with one reader thread: "waited" is how long steps after
//   the
//                       first waited for their batch, in ms: on average and at most
//
// The threads are N - 1 readers and the one that asks for batches, but for `step`, where N compute.
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> data_names();

// `path` is a folder or .tar with images, whatever their names; `repeat` times 32 batches of 16 are timed together (of
// `step`: `repeat` steps).
void run_data(const std::string& name, const std::string& path, int threads, int repeat, Report& report);

}  // namespace elinvar::bench
