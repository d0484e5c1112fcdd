#pragma once
// Which rows of logits (rows, classes) rank their target first, for accuracies. A row is hit if the target's logit is
// the largest; of several such classes the lowest counts (NUMERICS.md, rule 13), and a NaN is never hit.
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

enum class Hit : uint8_t { ignored, wrong, right };

struct HitsArgs {
  In logits, targets;  // (rows, classes), (rows) int64, checked
  Out hits;            // (rows) uint8: Hit
  int64_t rows, classes, ignored;
};
void hits(CpuStream&, const HitsArgs&);
template <class B>
void hits(GpuStream<B>&, const HitsArgs&);

// logits (.., classes) float32 or float64; targets (..) int32 or int64, each `ignored` or in [0, classes) -> (..) uint8
Tensor hits(const Tensor& logits, const Tensor& targets, int64_t ignored);

}  // namespace elinvar
