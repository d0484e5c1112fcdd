// The loss of sharded logits (NUMERICS.md, rule 26), bit for bit: its two sums over shards are those of tree_sum().
#include <gtest/gtest.h>

#include <algorithm>

#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"
#include "tensor/reduction_tree.h"
#include "tests/support/bits.h"

namespace elinvar {
namespace {

using test::same_bits;

constexpr int64_t kLossRows = 21, kLossClasses = 131;

Tensor filled(double value) { return Tensor::full({kLossRows}, value); }

// Returns numbers whose magnitudes differ between classes, so that the order of sums shows in their bits.
Tensor some_logits() {
  Tensor x = Tensor::empty({kLossRows, kLossClasses});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 12.0f * uniform01(philox(5, static_cast<uint32_t>(i), 0, 0, 0).v[0]) - 6.0f;
  return x;
}

TEST(ShardedLoss, SumsOverShardsInTheTree) {
  const Tensor logits = some_logits();
  Tensor targets = Tensor::empty({kLossRows}, DType::i64), at = Tensor::empty({kLossRows});
  for (int64_t row = 0; row < kLossRows; ++row) {
    targets.data<int64_t>()[row] = 37 * row % kLossClasses;
    at.data<float>()[row] = logits.data<float>()[row * kLossClasses + 37 * row % kLossClasses];
  }
  for (const int shards : {1, 2, 3, 4, 5, 6, 7, 8, 9, 64})
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(std::to_string(shards) + " shards, smoothing " + std::to_string(smoothing));
      std::vector<Tensor> terms;
      Tensor m;
      for (int s = 0; s < shards; ++s) {
        const IndexShard shard = shard_of(kLossClasses, s, shards);
        const Tensor part = logits.slice(1, shard.first, shard.first + shard.count);
        terms.push_back(cross_entropy_terms(part, targets, smoothing, -100, shard));
        const Tensor m_s = terms.back().select(0, ShardTerm::max);
        m = s == 0 ? m_s : maximum(m, m_s);
      }
      std::vector<Tensor> sums, shifted;
      for (int s = 0; s < shards; ++s) {
        const Tensor& term = terms[static_cast<size_t>(s)];
        const Tensor shift = sub(term.select(0, ShardTerm::max), m);
        const auto classes = static_cast<double>(shard_of(kLossClasses, s, shards).count);
        sums.push_back(mul(term.select(0, ShardTerm::sum), exp(shift)));
        shifted.push_back(add(term.select(0, ShardTerm::shifted_sum), mul(filled(classes), shift)));
      }
      const Tensor l = tree_sum(sums), log_l = log(l);
      if (shards == 64) {  // the order shows in the bits
        Tensor from_left = sums[0];
        for (size_t s = 1; s < sums.size(); ++s) from_left = add(from_left, sums[s]);
        EXPECT_FALSE(same_bits(from_left, l));
      }
      Tensor loss = sub(log_l, sub(at, m));
      if (smoothing != 0.0)
        loss = add(mul(filled(1.0 - smoothing), loss),
                   mul(filled(smoothing), sub(log_l, div(tree_sum(shifted), filled(kLossClasses)))));
      const ShardedCrossEntropy found = cross_entropy_of_terms(terms, targets, kLossClasses, smoothing, -100);
      EXPECT_TRUE(same_bits(found.result.m, m));
      EXPECT_TRUE(same_bits(found.result.r, div(filled(1.0), l)));
      EXPECT_TRUE(same_bits(found.result.loss, loss));
    }
}

}  // namespace
}  // namespace elinvar
