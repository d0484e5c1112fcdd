#include "tensor/reduction_tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <optional>

#include "tensor/base/check.h"
#include "tensor/philox.h"
#include "tensor/state.h"

namespace elinvar {
namespace {

// Values of all magnitudes, so that different orders of addition give different bits.
Tensor leaf_values(int leaf) {
  std::vector<float> x(37);
  for (uint32_t i = 0; i < x.size(); ++i) {
    const Random4 r = philox(7, static_cast<uint32_t>(leaf), i, 0, 0);
    x[i] = (uniform01(r.v[0]) - 0.5f) * static_cast<float>(1 << (r.v[1] % 12));
  }
  return Tensor::from(x, {37});
}

// The definition, word for word: split at the largest power of two below n.
std::optional<std::vector<float>> reference(int begin, int end, const std::vector<bool>& present) {
  if (end - begin == 1) {
    if (!present[static_cast<size_t>(begin)]) return std::nullopt;
    const Tensor x = leaf_values(begin);
    return std::vector<float>(x.span<float>().begin(), x.span<float>().end());
  }
  const int middle = begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  auto left = reference(begin, middle, present);
  const auto right = reference(middle, end, present);
  if (!left) return right;
  if (right)
    for (size_t i = 0; i < left->size(); ++i) (*left)[i] += (*right)[i];
  return left;
}

std::vector<Tensor> values_of(int leaf, const std::vector<bool>& present) {
  if (!present[static_cast<size_t>(leaf)]) return {};
  return {leaf_values(leaf)};
}

void expect_reference(TreeReducer& reducer, int leaves, const std::vector<bool>& present) {
  const auto expected = reference(0, leaves, present);
  const std::vector<Tensor> root = reducer.take_root();
  ASSERT_EQ(root.empty(), !expected.has_value());
  if (!expected) return;
  const auto got = root[0].span<float>();
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>((*expected)[i])) << leaves << " leaves, " << i;
}

TEST(ReductionTree, EqualsItsDefinition) {
  for (int leaves = 1; leaves <= 40; ++leaves) {
    const std::vector<bool> present(static_cast<size_t>(leaves), true);
    TreeReducer reducer(leaves);
    for (int i = 0; i < leaves; ++i) {
      EXPECT_FALSE(reducer.complete());
      reducer.add(i, values_of(i, present));
      EXPECT_LE(reducer.subtrees().size(), static_cast<size_t>(std::bit_width(static_cast<unsigned>(i + 1))));
    }
    EXPECT_TRUE(reducer.complete());
    expect_reference(reducer, leaves, present);
  }
}

TEST(ReductionTree, AbsentLeavesPassThrough) {
  for (int leaves = 1; leaves <= 20; ++leaves)
    for (uint32_t trial = 0; trial < 20; ++trial) {
      std::vector<bool> present(static_cast<size_t>(leaves));
      for (int i = 0; i < leaves; ++i)
        present[static_cast<size_t>(i)] =
            philox(3, static_cast<uint32_t>(leaves), trial, static_cast<uint32_t>(i), 0).v[0] % 3 != 0;
      TreeReducer reducer(leaves);
      for (int i = 0; i < leaves; ++i) reducer.add(i, values_of(i, present));
      expect_reference(reducer, leaves, present);
    }
}

// Workers reduce the intervals they own; the worker that finishes the tree gets the same bits, however leaves were
// assigned.
TEST(ReductionTree, AnyIntervalsGiveTheSameBits) {
  for (int leaves = 1; leaves <= 24; ++leaves)
    for (uint32_t trial = 0; trial < 20; ++trial) {
      std::vector<bool> present(static_cast<size_t>(leaves), true);
      if (trial % 2) present[static_cast<size_t>(leaves / 2)] = false;
      TreeReducer whole(leaves);
      for (int begin = 0; begin < leaves;) {
        const uint32_t random = philox(5, static_cast<uint32_t>(leaves), trial, static_cast<uint32_t>(begin), 0).v[0];
        const int end = begin + 1 + static_cast<int>(random % static_cast<uint32_t>(leaves - begin));
        TreeReducer part(leaves);
        for (int i = begin; i < end; ++i) part.add(i, values_of(i, present));
        for (const Subtree& subtree : part.subtrees()) {
          EXPECT_TRUE(is_node(subtree.begin, subtree.end, leaves));
          whole.add(subtree);
        }
        begin = end;
      }
      ASSERT_TRUE(whole.complete());
      expect_reference(whole, leaves, present);
    }
}

// As AnyIntervalsGiveTheSameBits, with two tensors a leaf; the last one of each interval comes tensor by tensor.
TEST(ReductionTree, AnOpenLeafGivesTheSameBits) {
  const auto same = [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(digest(a[i]), digest(b[i]));
  };
  for (int leaves = 1; leaves <= 17; ++leaves)
    for (uint32_t trial = 0; trial < 10; ++trial)
      for (int begin = 0; begin < leaves;) {
        const Random4 r = philox(5, static_cast<uint32_t>(leaves), trial, static_cast<uint32_t>(begin), 0);
        const int end = begin + 1 + static_cast<int>(r.v[0] % static_cast<uint32_t>(leaves - begin));
        TreeReducer closed(leaves), opened(leaves);
        for (int i = begin; i < end; ++i) {
          const std::vector<Tensor> values = {leaf_values(i), leaf_values(100 + i)};
          const bool present = i + 1 == end || r.v[1] >> i % 32 & 1;
          closed.add(i, present ? values : std::vector<Tensor>());
          if (i + 1 < end) {
            opened.add(i, present ? std::vector<Tensor>{leaf_values(i), leaf_values(100 + i)} : std::vector<Tensor>());
            continue;
          }
          opened.open(i, 2);
          EXPECT_FALSE(opened.complete());
          opened.put(1, values[1]);
          EXPECT_EQ(digest(opened.subtrees().back().values[1]), digest(closed.subtrees().back().values[1]));
          EXPECT_FALSE(opened.subtrees().back().values[0].defined());
          opened.put(0, values[0]);
          same(values, {leaf_values(i), leaf_values(100 + i)});
        }
        ASSERT_EQ(opened.subtrees().size(), closed.subtrees().size());
        for (size_t s = 0; s < closed.subtrees().size(); ++s) {
          EXPECT_EQ(opened.subtrees()[s].begin, closed.subtrees()[s].begin);
          EXPECT_EQ(opened.subtrees()[s].end, closed.subtrees()[s].end);
          same(opened.subtrees()[s].values, closed.subtrees()[s].values);
        }
        EXPECT_EQ(opened.complete(), closed.complete());
        begin = end;
      }
}

// With tensor parallelism a member has only some of the tensors, the same of every virtual rank.
TEST(ReductionTree, ValuesThatAreInNoLeafStayUndefined) {
  for (const bool opens : {false, true}) {
    TreeReducer reducer(3);
    for (int leaf = 0; leaf < 3; ++leaf) {
      if (!opens || leaf == 1) {
        reducer.add(leaf, {Tensor(), leaf_values(leaf), Tensor(), leaf_values(10 + leaf)});
        continue;
      }
      reducer.open(leaf, 4, /*absent=*/2);
      reducer.put(3, leaf_values(10 + leaf));
      EXPECT_FALSE(reducer.complete());
      EXPECT_THROW(reducer.add(leaf + 1, {}), UsageError) << "one more is to come";
      reducer.put(1, leaf_values(leaf));
      EXPECT_THROW(reducer.put(0, leaf_values(leaf)), UsageError);
    }
    reducer.move_to(Device{});
    ASSERT_TRUE(reducer.complete());
    const std::vector<Tensor> root = reducer.take_root();
    ASSERT_EQ(root.size(), 4u);
    EXPECT_FALSE(root[0].defined() || root[2].defined());
    EXPECT_EQ(digest(root[1]), digest(tree_sum({leaf_values(0), leaf_values(1), leaf_values(2)})));
    EXPECT_EQ(digest(root[3]), digest(tree_sum({leaf_values(10), leaf_values(11), leaf_values(12)})));
  }
  TreeReducer none(1);
  none.open(0, 2, /*absent=*/2);
  EXPECT_TRUE(none.complete()) << "nothing is to come";
}

TEST(ReductionTree, AValueIsInAllLeavesOrInNone) {
  for (const bool first : {false, true}) {
    TreeReducer reducer(2);
    reducer.add(0, {leaf_values(0), first ? leaf_values(1) : Tensor()});
    try {
      reducer.add(1, {leaf_values(0), first ? Tensor() : leaf_values(1)});
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "[reduction tree] tensor 1 is in some leaves alone");
    }
  }
}

TEST(ReductionTree, LeavesHandlesOfOthersAlone) {
  const Tensor a = leaf_values(0), copy = a.clone();
  TreeReducer reducer(2);
  reducer.add(0, {a});
  reducer.add(1, {leaf_values(1)});
  EXPECT_EQ(digest(a), digest(copy));
}

TEST(ReductionTree, Errors) {
  EXPECT_THROW(TreeReducer(0), UsageError);
  TreeReducer reducer(6);
  EXPECT_THROW(reducer.add(Subtree{1, 3, {}}), UsageError);
  EXPECT_THROW(reducer.add(6, {}), UsageError);
  reducer.add(2, {Tensor::zeros({3})});
  EXPECT_THROW(reducer.add(1, {}), UsageError);
  EXPECT_THROW(reducer.take_root(), UsageError);
  EXPECT_THROW(reducer.add(3, {Tensor::zeros({4})}), UsageError);

  TreeReducer open(6);
  EXPECT_THROW(open.put(0, Tensor::zeros({3})), UsageError);
  open.open(0, 2);
  open.put(1, Tensor::zeros({3}));
  EXPECT_THROW(open.put(1, Tensor::zeros({3})), UsageError);
  EXPECT_THROW(open.put(2, Tensor::zeros({3})), UsageError);
  EXPECT_THROW(open.add(1, {}), UsageError);
  open.put(0, Tensor::zeros({3}));
  EXPECT_THROW(open.open(1, 3), UsageError);
}

TEST(ReductionTree, AnExpandedLeafIsNotAddedToInPlace) {
  TreeReducer reducer(2);
  reducer.add(0, {Tensor::full({1}, 1.0).expand({3})});
  reducer.add(1, {Tensor::full({3}, 2.0)});
  const Tensor root = reducer.take_root()[0];
  for (float x : root.span<float>()) EXPECT_EQ(x, 3.0f);
}

}  // namespace
}  // namespace elinvar
