#pragma once
// Cross entropy of logits s (rows, classes) with class indices t, and its gradient; n classes, label smoothing e.
// Per row (NUMERICS.md, rules 11 and 14):
//   m = max(s)    l = sum(exp(s - m))    r = 1 / l    nll = log(l) - (s[t] - m)
//   loss = nll, or with smoothing  (1 - e) * nll + e * (log(l) - sum(s - m) / n)
//   ds = (exp(s - m) * r - q) * dy, where q = e / n, and at t it is (1 - e) + e / n
// Each sign is one rounding; 1 - e and both q are rounded once from float64. A row whose target is `ignored` has loss 0
// and gradient 0. The loss of all rows is their sum as one row (rule 11). A row that has a NaN or +inf, or only -inf,
// has a NaN loss and a gradient of NaNs.
//
// The forward pass reads the logits once and writes only three numbers per row; the gradient reads them once more, so a
// vocabulary of 50,000 costs two passes of reading and one of writing. cross_entropy_shards.h has the loss of logits
// whose classes are cut into shards.
#include "tensor/fields.h"
#include "tensor/ops/index.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct CrossEntropyArgs {
  In logits, targets;  // (rows, classes), (rows) int64, checked
  Out loss, m, r;      // (rows)
  int64_t rows, classes, ignored;
  double smoothing;
};
void cross_entropy(CpuStream&, const CrossEntropyArgs&);
template <class B>
void cross_entropy(GpuStream<B>&, const CrossEntropyArgs&);

struct CrossEntropyBackwardArgs {
  In dy, logits, targets, m, r;  // dy is one element
  Out dlogits;                   // may be the logits themselves
  // The logits are those of `classes` classes from `first` on, of `whole` in all, among which the targets are.
  int64_t rows, first, classes, whole, ignored;
  double smoothing;
};
void cross_entropy_backward(CpuStream&, const CrossEntropyBackwardArgs&);
template <class B>
void cross_entropy_backward(GpuStream<B>&, const CrossEntropyBackwardArgs&);

struct CrossEntropyResult {
  Tensor loss;           // (rows)
  Tensor targets, m, r;  // for the gradient: one per row, targets as int64
  ELINVAR_FIELDS(loss, targets, m, r)
};
// logits (.., classes) float32 or float64; targets (..) int32 or int64, each `ignored` or in [0, classes).
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing, int64_t ignored);

// dy () is the gradient of the sum of all losses. The result is like the logits; it overwrites them if they are moved
// in and the only handle on their elements.
Tensor cross_entropy_backward(const Tensor& dy, Tensor logits, const CrossEntropyResult& saved, double smoothing,
                              int64_t ignored);
// The same for logits of one shard of the classes; targets, m and r are those of all classes.
Tensor cross_entropy_shard_backward(const Tensor& dy, Tensor logits, const CrossEntropyResult& saved, double smoothing,
                                    int64_t ignored, const IndexShard& shard);

}  // namespace elinvar
