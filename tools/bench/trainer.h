#pragma once
// Networks that train on random data one step at a time, for `bench models` and `bench growth`.
#include <memory>
#include <string>
#include <vector>

#include "nn/micro_batch_graphs.h"
#include "nn/optimizer.h"
#include "nn/task.h"
#include "tensor/base/spec.h"
#include "tensor/precision.h"

namespace elinvar::bench {

struct ModelCase {
  std::string name;
  Spec spec;
  Shape sample;
  int64_t classes, batch;
  double forward_gflop = 0;  // per sample, a multiply-add counts two; 0: from the transformer's sizes below
  int64_t layers = 0, channels = 0;
  int64_t boxes = 0;              // of a sample, for detection
  int64_t experts_per_token = 1;  // perceptrons of a block that a token meets
  double masked = 0;  // the share of tokens that are to be predicted, whose targets are also an input; 0: all, without
  Spec task = {};

  bool is_text() const { return sample.ndim() == 1; }
  bool is_transformer() const { return layers > 0; }
};

Spec spec_of(const std::string& kind, std::map<std::string, Setting> settings = {});
// A GPT for sequences of `length` tokens.
ModelCase gpt_case(const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t length,
                   int64_t classes, int64_t batch);
// The same with a mixture of eight experts in each block, of which a token meets two.
ModelCase mixture_case(ModelCase gpt);

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
  StateDict batch() const { return {{"input", input_}, {"target", target_}}; }
  StateDict state() const;  // of network and optimiser

  double gflop() const;  // of a step
  double items() const;  // samples or tokens of a step
  const char* unit() const { return model_.is_text() ? "tokens" : "samples"; }

 private:
  Inputs inputs() const;

  ModelCase model_;
  int64_t batch_;
  TrainerOptions options_;
  OptimizerConfig config_;
  MadeTask task_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor input_, target_;
  MicroBatchGraphs graphs_;
  int64_t step_ = 0;
};

}  // namespace elinvar::bench
