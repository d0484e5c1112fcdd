#pragma once
// The needs of workers with GPUs, for the forecasts of memory of `train check` and of dry runs.
#include "data/loader.h"
#include "tools/config/config.h"
#include "tools/training/memory_forecast.h"

namespace elinvar {

// Returns how many of these workers have a GPU together, if `--device` names it in this way and it is `device`. `gpus`
// is the number of GPUs here.
int workers_sharing(const std::string& name, Device device, int workers, int gpus);

// Returns the needs without those of batches. `sharing`: the number of workers that have the GPU together.
GpuNeeds gpu_needs(const Config& config, Device device, int sharing);

// Adds a virtual rank's batches: the one in use, and those that readers have made ahead on the host and sent ahead.
void add_batches(MemoryNeeds& needs, const Config& config, const Batch& batch);

}  // namespace elinvar
