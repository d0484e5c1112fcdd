#pragma once
// The inputs and results of a step: the gradient of each virtual rank, and the result of their reduction.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/step/scaling_state.h"
#include "tensor/base/json_value.h"
#include "tensor/digest.h"
#include "tensor/slice.h"
#include "tensor/tensor.h"
#include "tensor/fields.h"

namespace elinvar {

// Returns whether an action that is taken every `every` steps (0: never) is due after `step` steps.
inline bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// The facts of one rank gradient: sums, not means.
struct RankFacts {
  double loss_sum = 0;
  int64_t count = 0;  // the mean's divisor: the number of targets that count
  int64_t correct = 0;
  int64_t samples = 0;
  Digest batch = {};               // the digest of its input and target
  std::string batch_tensors = {};  // the short digests of its input and target (tensor/digest_tree.h)
  // The digest of its gradients and batch statistics as they leave the worker, if another process needs it. `tensors`
  // holds the short digests of each, concatenated.
  std::optional<Digest> gradient = {};
  std::string tensors = {};
  JsonValue attached = {};  // other data that the loop shares with every member

  ELINVAR_FIELDS(loss_sum, count, correct, samples, batch, batch_tensors, gradient, tensors, attached)
};

// The gradient of one virtual rank. Without samples (a short batch) it has no tensors. All tensors are contiguous
// float32, on the CPU or on the device that reduces them (StepGradients::stay_on_device).
struct RankGradient {
  std::vector<Tensor> gradients = {};
  std::vector<Tensor> batch_statistics = {};  // for running statistics: combined by the same tree, but not scaled
  std::vector<int> statistics_segments = {};  // the network's segment of each batch statistic; none: not known
  RankFacts facts = {};
  std::optional<Digest> digest = {};  // digest of all tensors (elastic/audit/audit.h), if already computed
};

// The digest of tensors in order, and the short digest of each, as in RankFacts.
struct TensorsDigest {
  Digest digest;
  std::string tensors;
};
TensorsDigest digest_in_order(std::span<const Tensor> tensors, std::span<const Tensor> then = {});
TensorsDigest digest_in_order(std::span<const Digest> tensors);

// The digests of a whole state: the short digests of its tensors in name order, and those of the chunks of tensors that
// have several, concatenated (tensor/digest_tree.h).
struct StateDigests {
  std::string tensors = {}, chunks = {};
  bool operator==(const StateDigests&) const = default;
  ELINVAR_FIELDS(tensors, chunks)
};

// The gradients of a step with ZeRO: each worker gets the sums of the buckets that it keeps, and facts of all.
struct GradientShards {
  struct Bucket {
    int number = 0;
    std::vector<Slice> slices;
    std::vector<Tensor> gradients;  // of each slice, one-dimensional; empty if no virtual rank had samples
  };
  std::vector<Bucket> kept;     // ascending
  std::vector<double> squares;  // the sums of squares of all segments of all gradients (NUMERICS.md, rule 19), in order
  std::vector<Digest> chunks;   // the digests of all chunks of all gradients (tensor/digest_tree.h), in order
};

// The digests of the chunks of the optimizer's tensors in a bucket, in the order of its slices, of the tensors of a
// slice, and of their chunks.
struct BucketChunks {
  int bucket = 0;
  std::vector<Digest> chunks;
};

struct Reduced {
  std::vector<Tensor> gradients;         // root of the tree * float(1 / count): one more rounding; none with `shards`
  std::optional<GradientShards> shards;  // with ZeRO
  std::vector<Tensor> batch_statistics;  // root of the tree
  // With ZeRO, if the state was digested: the digests of the chunks of the optimizer's state.
  std::vector<BucketChunks> state_chunks;
  int leaves = 0;   // the number of virtual ranks that had samples
  double loss = 0;  // virtual ranks' sums, added left to right in binary64, / count
  int64_t count = 0, correct = 0, samples = 0;
  Digest batch;                  // digest of the virtual ranks' batches, in order
  std::optional<Digest> state;   // digest of the state before the step, if every member computed it
  StateDigests state_digests;    // digests of the parts of `state`
  std::string contradiction;     // which members differ in the state's digest or in scaling state; "": all agree
  std::vector<RankFacts> facts;  // one for each virtual rank
  std::vector<double> seconds;   // the time of one rank gradient on each member; 0: the member had none
  ScalingState scaling_state;    // the scaling state of the step, with adaptive scaling
  int64_t generation = 0;        // the generation whose members made the step; 0: before this member was in one
};

}  // namespace elinvar
