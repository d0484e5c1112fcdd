#pragma once
// Cross entropy of logits whose n classes are cut into V shards (NUMERICS.md, rules 25 and 26), in two ops. The
// process that has the logits of a shard computes five numbers a row from them; each process that has those of all
// shards computes the loss.
//
//   per shard s of n_s classes, with logits x and target class t
//     m_s = max(x)    l_s = sum(exp(x - m_s))    a_s = sum(x - m_s)    (rule 11)
//     at_s = x[t], and top_s = 2 if t is the lowest class with x[t] = m_s, else 1; both are 0 if t is in another shard
//   for all shards, T being the tree of rule 18 over the shards
//     m = max(m_s)    l = T(l_s * exp(m_s - m))    r = 1 / l    nll = log(l) - (at - m)
//     loss = nll, or with smoothing  (1 - e) * nll + e * (log(l) - T(a_s + n_s * (m_s - m)) / n)
//
// Each sign is one rounding. The gradient is cross_entropy_shard_backward() of cross_entropy.h. A row whose target is
// `ignored` has zeros for all numbers. The loss is NaN for a row that has a NaN or +inf, or a shard in which all its
// logits are -inf.
#include <vector>

#include "tensor/fields.h"
#include "tensor/numerics.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct ShardTerm {
  enum : int64_t { max, sum, shifted_sum, target, top, count };  // m_s, l_s, a_s, at_s, top_s
};

struct ShardTermsArgs {
  In logits, targets;                     // (rows, classes), (rows) int64, checked
  Out terms;                              // (ShardTerm::count, rows)
  int64_t rows, first, classes, ignored;  // the logits are those of `classes` classes from `first` on
  double smoothing;                       // without smoothing a_s is 0
};
void cross_entropy_terms(CpuStream&, const ShardTermsArgs&);
template <class B>
void cross_entropy_terms(GpuStream<B>&, const ShardTermsArgs&);

struct ShardLossesArgs {
  In terms;                       // (shards, ShardTerm::count, rows)
  Out loss, m, r;                 // (rows)
  Out top1;                       // (rows) uint8: Top1 (top1_correct.h)
  int64_t rows, shards, classes;  // of all shards
  double smoothing;
};
void cross_entropy_of_terms(CpuStream&, const ShardLossesArgs&);
template <class B>
void cross_entropy_of_terms(GpuStream<B>&, const ShardLossesArgs&);

// logits (.., shard.count), targets (..) int32 or int64, each `ignored` or in [0, shard.whole) -> the numbers of each
// row, (ShardTerm::count, rows).
Tensor cross_entropy_terms(const Tensor& logits, const Tensor& targets, double smoothing, int64_t ignored,
                           const IndexShard& shard);

struct ShardedCrossEntropy {
  CrossEntropyResult result;
  Tensor top1;  // (rows) uint8: a Top1 each
  ELINVAR_FIELDS(result, top1)
};
// `terms` are those of all shards, in order, for the same targets.
ShardedCrossEntropy cross_entropy_of_terms(const std::vector<Tensor>& terms, const Tensor& targets, int64_t classes,
                                           double smoothing, int64_t ignored);

}  // namespace elinvar
