#pragma once
// Random data of a case: what describes them to a network and to a task, and a batch of them.
#include "models/input_info.h"
#include "nn/network.h"
#include "nn/task.h"
#include "tools/bench/model_cases.h"

namespace elinvar::bench {

// `outputs`: the numbers that the task needs of the network.
InputInfo input_of(const ModelCase& c, int64_t outputs);
TargetInfo target_of(const ModelCase& c);

struct RandomBatch {
  Inputs inputs;
  Tensor target;
};
RandomBatch random_batch(const ModelCase& c, int64_t batch);

}  // namespace elinvar::bench
