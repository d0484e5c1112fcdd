#pragma once
// Top-1 accuracy: tells for each row of logits (rows, classes) whether its target has the largest logit. If several
// classes have it, the lowest counts (NUMERICS.md, rule 13). A row is wrong if its target's logit is NaN.
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

enum class Top1 : uint8_t { ignored, wrong, correct };

struct Top1CorrectArgs {
  In logits, targets;  // (rows, classes), (rows) int64, checked
  Out top1;            // (rows) uint8: Top1
  int64_t rows, classes, ignored;
};
void top1_correct(CpuStream&, const Top1CorrectArgs&);
template <class B>
void top1_correct(GpuStream<B>&, const Top1CorrectArgs&);

// logits (.., classes) float32 or float64; targets (..) int32 or int64, each `ignored` or in [0, classes) -> (..)
// uint8, a Top1 each. Throws UsageError for other shapes, types or targets. Traces and messages call the op "hits".
Tensor top1_correct(const Tensor& logits, const Tensor& targets, int64_t ignored);

}  // namespace elinvar
