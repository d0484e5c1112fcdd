// Compares the order of sums with a plain implementation of NUMERICS.md's text; and exact extrema.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/isa.h"
#include "tensor/numerics.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/extrema.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/row_sum.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

float rule_11(const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  if (n > kRowSegment) {
    std::vector<float> partial;
    for (int64_t s = 0; s < n; s += kRowSegment)
      partial.push_back(rule_11({x.begin() + s, x.begin() + std::min(n, s + kRowSegment)}));
    return rule_11(partial);
  }
  std::vector<float> lanes(kRowLanes, 0.0f);
  for (int64_t i = 0; i < n; ++i) lanes[static_cast<size_t>(i % kRowLanes)] += x[static_cast<size_t>(i)];
  for (size_t s = kRowLanes / 2; s > 0; s /= 2)
    for (size_t l = 0; l < s; ++l) lanes[l] += lanes[l + s];
  return 0.0f + lanes[0];
}

float rule_12(const std::vector<float>& x) {
  std::vector<float> level;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % kColumnLeaf == 0) level.push_back(0.0f);
    level.back() += x[i];
  }
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < level.size(); i += 2)
      next.push_back(i + 1 < level.size() ? level[i] + level[i + 1] : level[i]);
    level = next;
  }
  return 0.0f + level[0];
}

template <class F>
void on_every_isa(F f) {
  for (Isa isa : available_isas()) {
    set_isa(isa);
    SCOPED_TRACE(name_of(isa));
    f();
  }
  set_isa(available_isas().back());
}

TEST(Reduce, RowsFollowRule11) {
  for (int64_t n : {1, 15, 63, 64, 65, 200, 4096, 4097, 70000}) {
    const Tensor x = normal({3, n}, "rows");
    Tensor expected = Tensor::empty({3});
    for (int64_t r = 0; r < 3; ++r) {
      const float* row = x.data<float>() + r * n;
      expected.data<float>()[r] = rule_11({row, row + n});
    }
    on_every_isa([&] { EXPECT_TRUE(same_bits(sum(x, {1}), expected)) << n; });
  }
}

TEST(Reduce, ColumnsFollowRule12) {
  for (int64_t n : {1, 64, 65, 200, 449, 1024, 1025, 5000}) {
    const Tensor x = normal({2, n, 21}, "columns");
    Tensor expected = Tensor::empty({2, 21});
    for (int64_t o = 0; o < 2; ++o) {
      for (int64_t c = 0; c < 21; ++c) {
        std::vector<float> column;
        for (int64_t k = 0; k < n; ++k) column.push_back(x.data<float>()[(o * n + k) * 21 + c]);
        expected.data<float>()[o * 21 + c] = rule_12(column);
      }
    }
    on_every_isa([&] { EXPECT_TRUE(same_bits(sum(x, {1}), expected)) << n; });
  }
}

TEST(Reduce, MixedDimensionsAreRowsThenColumns) {
  const Tensor x = normal({5, 70, 3, 40}, "mixed");
  const Tensor rows = sum(x, {3});
  EXPECT_TRUE(same_bits(sum(x, {1, 3}), sum(rows, {1})));
  EXPECT_TRUE(same_bits(sum(x, {0, 1, 3}, true).reshape({3}), sum(rows.reshape({350, 3}), {0})));
}

TEST(Reduce, SumsEndWithPlusZero) {
  const Tensor x = Tensor::full({3, 1, 4}, -0.0);
  for (int d : {0, 1, 2})
    for (float v : sum(x, {d}).span<float>()) EXPECT_FALSE(std::signbit(v)) << d;
}

TEST(Reduce, NothingSumsToZero) {
  EXPECT_TRUE(same_bits(sum(Tensor::zeros({3, 0}), {1}), Tensor::zeros({3})));
  EXPECT_TRUE(same_bits(sum(Tensor::zeros({0, 3}), {0}), Tensor::zeros({3})));
  EXPECT_EQ(sum(Tensor::zeros({0, 3}), {1}).numel(), 0);
}

TEST(Reduce, SumToUndoesBroadcasting) {
  const Tensor dy = normal({4, 3, 5}, "dy");
  EXPECT_TRUE(same_bits(sum_to(dy, {4, 3, 5}), dy));
  EXPECT_TRUE(same_bits(sum_to(dy, {5}), sum(dy, {0, 1})));
  EXPECT_TRUE(same_bits(sum_to(dy, {3, 1}), sum(dy, {0, 2}).reshape({3, 1})));
  EXPECT_TRUE(same_bits(sum_to(dy, {4, 1, 5}), sum(dy, {1}, true)));
  EXPECT_TRUE(same_bits(sum_to(dy, {}), sum(dy)));
}

TEST(Reduce, AnEmptyBatchSumsToZero) {
  Tensor::full({4096}, 7.0);  // leaves memory that is not zero for the next tensors
  EXPECT_TRUE(same_bits(column_sum(Tensor::zeros({2, 0, 5})), Tensor::zeros({2, 5})));
  const Tensor x = Tensor::zeros({0, 5});
  for (RowNorm kind : {RowNorm::layer, RowNorm::rms}) {
    const RowNormResult y = kind == RowNorm::layer ? layer_norm(x, {}, {}, 1e-5) : rms_norm(x, {}, 1e-5);
    const RowNormGradients g = row_norm_backward(kind, x, x, {}, y, true, true);
    EXPECT_TRUE(same_bits(g.dgamma, Tensor::zeros({5})));
    EXPECT_TRUE(same_bits(g.dbeta, Tensor::zeros({5})));
  }
}

TEST(Reduce, DotIsARowOfFma) {
  const Tensor a = normal({9, 7}, "a"), b = normal({9, 7}, "b");
  std::vector<float> lanes(kRowLanes, 0.0f);
  for (int64_t i = 0; i < 63; ++i)
    lanes[static_cast<size_t>(i)] = std::fma(a.data<float>()[i], b.data<float>()[i], 0.0f);
  on_every_isa([&] { EXPECT_EQ(dot(a, b).item(), static_cast<double>(rule_11(lanes))); });
}

TEST(Extrema, TheLowestIndexWins) {
  const Tensor x = Tensor::from<float>({1, 3, -2, 3, -2, 0, -0.0f, -0.0f, -0.0f, -0.0f}, {2, 5});
  EXPECT_TRUE(same_bits(argmax(x, 1), Tensor::from<int64_t>({1, 0}, {2})));
  EXPECT_TRUE(same_bits(argmin(x, -1, true), Tensor::from<int64_t>({2, 0}, {2, 1})));
  EXPECT_TRUE(same_bits(max(x, 1).value, Tensor::from<float>({3, 0}, {2})));
  EXPECT_TRUE(same_bits(argmax(x, 0), Tensor::from<int64_t>({0, 0, 1, 0, 1}, {5})));
}

TEST(Extrema, ANanIsBothTheLargestAndTheSmallest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from<float>({1, nan, 5, nan}, {4});
  EXPECT_EQ(argmax(x, 0).item(), 1);
  EXPECT_EQ(argmin(x, 0).item(), 1);
  EXPECT_TRUE(std::isnan(max(x, 0).value.item()));
}

}  // namespace
}  // namespace elinvar::test
