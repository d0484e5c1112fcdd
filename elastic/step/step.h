#pragma once
// What a step takes and gives: the leaf of each virtual rank, and what their reduction says.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/step/scaling_state.h"
#include "tensor/digest.h"
#include "tensor/tensor.h"
#include "tensor/fields.h"

namespace elinvar {

// Whether something that happens every so many steps (0: never) does after `step` of them.
inline bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// The facts of one virtual rank's leaf: sums, not means.
struct RankFacts {
  double loss_sum = 0;
  int64_t count = 0;  // what the mean divides by: targets that count
  int64_t correct = 0;
  int64_t samples = 0;
  Digest batch = {};               // of its input and target,
  std::string batch_tensors = {};  // and the short ones of each (tensor/digest_tree.h)
  // Of its gradients and batch statistics as they leave the worker, where somebody is to know it; and of each, the
  // short digests one after another.
  std::optional<Digest> gradient = {};
  std::string tensors = {};
  nlohmann::json attached = {};  // whatever else the loop wants every member to know of it

  ELINVAR_FIELDS(loss_sum, count, correct, samples, batch, batch_tensors, gradient, tensors, attached)
};

// Without samples (a short batch) a leaf has no tensors. All tensors are contiguous float32, on the CPU, or on the
// device that adds them up (StepReduction::keeps_leaves).
struct RankGradient {
  std::vector<Tensor> gradients = {};
  std::vector<Tensor> batch_statistics = {};  // of running statistics: combined by the same tree, but not scaled
  RankFacts facts = {};
  std::optional<Digest> digest = {};  // of all of it (elastic/audit/audit.h), where somebody has it already
};

// The digest of tensors in their order, and the short ones of each, as RankFacts has them.
struct TensorsDigest {
  Digest digest;
  std::string tensors;
};
TensorsDigest digest_in_order(std::span<const Tensor> tensors, std::span<const Tensor> then = {});

// Of a whole state: the short digests of its tensors in name order, and, one after another, those of the chunks of the
// tensors that have several (tensor/digest_tree.h).
struct StateDigests {
  std::string tensors = {}, chunks = {};
  bool operator==(const StateDigests&) const = default;
  ELINVAR_FIELDS(tensors, chunks)
};

struct Reduced {
  std::vector<Tensor> gradients;         // root of the tree * float(1 / count): one more rounding
  std::vector<Tensor> batch_statistics;  // root of the tree
  int leaves = 0;                        // virtual ranks that had samples
  double loss = 0;                       // virtual ranks' sums, added left to right in binary64, / count
  int64_t count = 0, correct = 0, samples = 0;
  Digest batch;                 // of the virtual ranks' batches, in their order
  std::optional<Digest> state;  // before the step, where every member digested it,
  StateDigests state_digests;   // and its parts
  std::string contradiction;  // the digests of the state, or the scaling states, differ: who has which; "": they agree
  std::vector<RankFacts> facts;  // of each virtual rank
  std::vector<double> seconds;   // that a leaf took each member; 0: it had none
  ScalingState scaling_state;    // at which the step was made, with adaptive scaling,
  int64_t generation = 0;        // and by the members of which it was made; 0: before this member was one
};

}  // namespace elinvar
