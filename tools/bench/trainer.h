#pragma once
// Networks that train on random data one step at a time, for `bench models` and `bench growth`.
#include <memory>

#include "nn/micro_batch_graphs.h"
#include "nn/optimizer.h"
#include "nn/task.h"
#include "tensor/precision.h"
#include "tools/bench/case_data.h"
#include "tools/bench/model_cases.h"

namespace elinvar::bench {

struct TrainerOptions {
  bool recompute = false;
  Device device = {};
  Precision precision = Precision::portable;
  bool graphs = false;  // record gradients as graphs: nn/micro_batch_graphs.h
  int shards = 1;       // virtual shards of the network
};

// The network of a case with random data and an optimiser.
class Trainer {
 public:
  Trainer(const ModelCase& model, int64_t batch, const TrainerOptions& options = {});

  MicroBatchResult gradients();                 // forward and backward
  void update(const MicroBatchResult& result);  // ends the step
  void step() { update(gradients()); }
  void settle() const;                                        // waits for the device
  void set_batch(const Tensor& input, const Tensor& target);  // replaces the random data
  StateDict batch() const { return {{"input", data_.inputs.first}, {"target", data_.target}}; }
  StateDict state() const;  // of network and optimiser

  double gflop() const;  // of a step
  double items() const;  // samples or tokens of a step
  const char* unit() const { return model_.is_text() ? "tokens" : "samples"; }

 private:
  ModelCase model_;
  int64_t batch_;
  TrainerOptions options_;
  OptimizerConfig config_;
  MadeTask task_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  RandomBatch data_;
  MicroBatchGraphs graphs_;
  int64_t step_ = 0;
};

}  // namespace elinvar::bench
