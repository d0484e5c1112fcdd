#pragma once
// A network: parameters and a forward pass that is a pure function of them, the input and the context.
#include <memory>
#include <utility>
#include <vector>

#include "autograd/loss.h"
#include "autograd/norm.h"
#include "autograd/shards.h"
#include "autograd/var.h"
#include "nn/expert_load.h"
#include "nn/parameters.h"
#include "tensor/philox.h"

namespace elinvar {

class AttentionCache;
class Residence;

// The batch statistics of one batch norm in a forward pass, with which the update changes the running ones.
struct Statistic {
  std::shared_ptr<Buffer> running_mean, running_var;
  double momentum;
  BatchStatistics batch;
};

// Measurements of one segment in a forward pass, for networks that are lists of segments (nn/segments.h).
struct SegmentRun {
  double seconds = 0;     // until the CPU went on with the next one
  Shape value = {};       // what it gives; none for the head
  size_t statistics = 0;  // the number of its batch norms
};

class InputStore;

// The input of a network. A network with several inputs, all with the same first extent, gets the first one as the
// argument of its forward pass, and segments read the others from their context.
struct Inputs {
  Tensor first;
  std::vector<Tensor> further = {};
  Inputs(Tensor only, std::vector<Tensor> others = {})  // NOLINT(google-explicit-constructor): most networks have one
      : first(std::move(only)), further(std::move(others)) {}
};

// Whether blocks keep only their input between the passes and run again for the gradient, with the same bits.
struct Recompute {
  bool on;
  InputStore* inputs;  // where the inputs are meanwhile (nn/input_store.h); null: in the device's memory
  Recompute(bool is_on = false, InputStore* store = nullptr) : on(is_on), inputs(store) {}  // NOLINT: bool converts
  bool operator==(const Recompute&) const = default;
};

// The state of a forward pass besides parameters and input, and its reports.
struct Context {
  bool training = false;
  Rng rng = {};                            // rng.next() for each random operation
  std::vector<Statistic> statistics = {};  // in the order in which batch norms ran
  std::vector<SegmentRun> segments = {};   // of a network that is a list of segments
  std::vector<ExpertLoad> loads = {};      // of mixtures of experts, in the order in which they ran; not in training
  Recompute recompute = {};
  AttentionCache* cache = nullptr;      // for the tokens before the input (nn/attention_cache.h); may be null
  ShardGroup* group = &local_shards();  // computes the virtual shards of its own, and combines all
  Residence* residence = nullptr;       // brings in parameters while they are used; null: all are in memory
  std::vector<Tensor> inputs = {};      // Inputs::further

  Shards shards(int count) const { return {count, group}; }
};

class Network {
 public:
  virtual ~Network() = default;
  // Images (N, H, W, C) float32 -> logits (N, classes); tokens (B, T) int32 -> logits (B, T, vocabulary).
  // With context.cache, tokens (B, T) that follow those in the cache -> logits (B, 1, vocabulary) for the last one. A
  // network of pairs of texts gets the same source in each of these calls, and the targets that follow.
  virtual Var forward(const Tensor& input, Context& context) const = 0;
  // The same logits in shards of the classes, if the network computes them so; otherwise in one. Outputs that are no
  // logits of classes may be apart (ShardedLogits::further).
  virtual ShardedLogits sharded_logits(const Tensor& input, Context& context) const {
    return {.parts = {forward(input, context)}};
  }
  // Returns whether the network supports context.cache, with products of the present precision.
  virtual bool continues() const { return false; }

  Parameters parameters;
};

}  // namespace elinvar
