// Max pooling of ties, signed zeros and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/ops/pool.h"

namespace elinvar {
namespace {

struct Pooled {
  Tensor y, dx;
};

// One window of 2 x 2 over one channel, repeated over enough channels to fill vectors and leave a tail.
Pooled window(float a, float b, float c, float d) {
  constexpr int64_t kChannels = 21;
  Tensor x = Tensor::empty({1, 2, 2, kChannels});
  const float values[] = {a, b, c, d};
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = values[i / kChannels];
  const PoolAxis axis = pool_axis("max_pool2d", 2, 2, 2, 0);
  Tensor winner;
  Pooled p{max_pool(x, axis, axis, &winner), {}};
  p.dx = max_pool_backward(Tensor::full(p.y.shape(), 3.0), winner, axis, axis);
  for (int64_t k = 0; k < kChannels; ++k) {  // all lanes are equal
    const float y = p.y.data<float>()[k], y0 = p.y.data<float>()[0];
    EXPECT_TRUE(y == y0 || (std::isnan(y) && std::isnan(y0)));
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(p.dx.data<float>()[i * kChannels + k], p.dx.data<float>()[i * kChannels]);
  }
  return p;
}

void expect_winner(const Pooled& p, int64_t place) {
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(p.dx.data<float>()[i * 21], i == place ? 3.0f : 0.0f) << "position " << i;
}

TEST(MaxPool, TheLowestIndexWinsAtTies) {
  expect_winner(window(1, 2, 2, 2), 1);
  expect_winner(window(5, 5, 5, 5), 0);
  const float infinity = std::numeric_limits<float>::infinity();
  expect_winner(window(-infinity, -infinity, -infinity, -infinity), 0);
}

TEST(MaxPool, ZerosOfEitherSignAreEqual) {
  const Pooled p = window(-1.0f, -0.0f, 0.0f, -2.0f);
  expect_winner(p, 1);
  EXPECT_TRUE(std::signbit(p.y.data<float>()[0]));
}

TEST(MaxPool, TheFirstNanStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t place = 0; place < 4; ++place) {
    float v[] = {1, 2, 3, 4};
    for (int64_t i = place; i < 4; i += 2) v[i] = nan;
    const Pooled p = window(v[0], v[1], v[2], v[3]);
    expect_winner(p, place);
    EXPECT_TRUE(std::isnan(p.y.data<float>()[0]));
  }
}

}  // namespace
}  // namespace elinvar
