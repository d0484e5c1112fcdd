// Compares the bits of batch norm with its rules written out scalar by scalar, and those of the fused forms with the
// separate functions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "autograd/norm.h"
#include "autograd/pointwise.h"
#include "autograd/reduce.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

Tensor random(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]) * 3.0f - 1.0f;
  return x;
}

void expect_same_bits(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  for (int64_t i = 0; i < a.numel(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(a.data<float>()[i]), std::bit_cast<uint32_t>(b.data<float>()[i]))
        << what << ", element " << i;
}

struct Node {
  float mean, m2, n;
};

Node statistics(const std::vector<float>& x) {
  std::vector<Node> level;
  for (size_t begin = 0; begin < x.size(); begin += 64) {
    const size_t end = std::min(x.size(), begin + 64);
    Node leaf{0.0f, 0.0f, static_cast<float>(end - begin)};
    float sum = 0.0f;
    for (size_t i = begin; i < end; ++i) sum += x[i];
    leaf.mean = sum / leaf.n;
    for (size_t i = begin; i < end; ++i) leaf.m2 = std::fma(x[i] - leaf.mean, x[i] - leaf.mean, leaf.m2);
    level.push_back(leaf);
  }
  while (level.size() > 1) {
    std::vector<Node> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      Node a = level[i];
      if (i + 1 < level.size()) {
        const Node b = level[i + 1];
        const float n = a.n + b.n, w = b.n / n, d = b.mean - a.mean;
        a = {std::fma(d, w, a.mean), (a.m2 + b.m2) + (d * d) * (a.n * w), n};
      }
      next.push_back(a);
    }
    level = next;
  }
  return level[0];
}

TEST(BatchNorm, StatisticsFollowTheRule) {
  for (int64_t rows : {1, 63, 64, 65, 512, 513, 1500, 5 * 512 + 200}) {
    const int64_t channels = 37;
    const Tensor x = random({rows, channels}, 5);
    const BatchStatistics s = batch_statistics(x);
    EXPECT_EQ(s.count, rows);
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<float> column;
      for (int64_t r = 0; r < rows; ++r) column.push_back(x.data<float>()[r * channels + c]);
      const Node root = statistics(column);
      ASSERT_EQ(s.mean.data<float>()[c], root.mean) << rows << " rows, channel " << c;
      ASSERT_EQ(s.var.data<float>()[c], root.m2 / root.n) << rows << " rows, channel " << c;
    }
  }
}

TEST(BatchNorm, FusedFormsHaveTheBitsOfTheSeparateOnes) {
  const Shape shape{9, 8, 8, 24};
  for (bool relu_after : {false, true}) {
    for (bool with_residual : {false, true}) {
      const auto leaves = [&] {
        return std::vector<Var>{Var(random(shape, 1), true), Var(random({24}, 2), true), Var(random({24}, 3), true),
                                Var(random(shape, 4), true)};
      };
      std::vector<Var> a = leaves(), b = leaves();
      const Var weights = random(shape, 6);
      const Var fused = batch_norm(a[0], a[1], a[2], {.relu = relu_after, .residual = with_residual ? a[3] : Var()}).y;
      Var separate = batch_norm(b[0], b[1], b[2]).y;
      if (with_residual) separate = separate + b[3];
      if (relu_after) separate = relu(separate);
      expect_same_bits(fused.value(), separate.value(), "y");
      backward(sum(fused * weights));
      backward(sum(separate * weights));
      for (size_t i = 0; i < (with_residual ? 4u : 3u); ++i) expect_same_bits(a[i].grad(), b[i].grad(), "gradient");
    }
  }
}

}  // namespace
}  // namespace elinvar
