#pragma once
// Training steps of whole networks: forward, backward and update, on random data of the case's size.
#include "tools/bench/report.h"
#include "tools/bench/trainer.h"

namespace elinvar::bench {

// batch 0: the case's default. `kernels`: rows of the kernels that take longest in a step, on a GPU, with their time
// and launches (tools/bench/kernel_times.h).
void run_model(const std::string& name, int64_t batch, const TrainerOptions& options, int warm_up, int repeat,
               int kernels, Report& report);

// The same for networks in each of these numbers of virtual shards, whose steps alternate. Each row tells how
// many per cent longer its steps are than the first one's, as the median over the rounds.
void run_in_shards(const std::string& name, int64_t batch, const TrainerOptions& options,
                   const std::vector<int>& shards, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
