// Rotary angles are functions of the position alone, so a sequence may be computed in pieces.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "autograd/linear.h"
#include "tensor/ops/rotary.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

TEST(Rotary, PiecesOfASequenceAgreeWithTheWhole) {
  const Tensor x = normal({2, 40, 3, 10}, "x");
  const Tensor whole = rotary(Var(x), {}, 5).value();
  for (int64_t t : {0, 1, 17, 39}) {
    const Tensor piece = rotary(Var(x.slice(1, t, 40)), {}, 5 + t).value();
    EXPECT_TRUE(same_bits(piece, whole.slice(1, t, 40))) << t;
  }
}

TEST(Rotary, AnglesAreRoundedOnceFromWideOnes) {
  for (int64_t half : {1, 5, 64}) {
    const RotaryAngles wide = rotary_angles(3, half, {}, 131070, DType::f64);
    const RotaryAngles narrow = rotary_angles(3, half, {}, 131070, DType::f32);
    EXPECT_TRUE(same_bits(narrow.cos, wide.cos.to(DType::f32)));
    EXPECT_TRUE(same_bits(narrow.sin, wide.sin.to(DType::f32)));
    for (int64_t i = 0; i < half; ++i) {
      const double angle = 131072.0 * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      // Angles up to 131072 are rounded to 53 bits, so each side has an error of a few times 2^-36.
      EXPECT_NEAR(wide.cos.data<double>()[2 * half + i], std::cos(angle), 1e-9);
      EXPECT_NEAR(wide.sin.data<double>()[2 * half + i], std::sin(angle), 1e-9);
    }
  }
}

// LLaMA 3.1's scaling: fast pairs keep their bits; slow ones turn as at positions smaller by the scaling factor.
TEST(Rotary, OnlySlowPairsAreSlowed) {
  constexpr int64_t kHalf = 64, kAt = 1 << 16;
  constexpr RotaryFrequencies kPlain{500000.0}, kScaled{500000.0, 8.0, 1.0, 4.0, 8192};
  const Tensor plain = rotary_angles(1, kHalf, kPlain, kAt, DType::f64).sin,
               near = rotary_angles(1, kHalf, kPlain, kAt / 8, DType::f64).sin,
               scaled = rotary_angles(1, kHalf, kScaled, kAt, DType::f64).sin;
  int64_t fast = 0, slow = 0;
  for (int64_t i = 0; i < kHalf; ++i) {
    const double turns = 8192 / (2 * std::numbers::pi) * std::pow(500000.0, -static_cast<double>(i) / kHalf);
    if (turns > 4.001) {
      ++fast;
      EXPECT_EQ(scaled.data<double>()[i], plain.data<double>()[i]) << i;
    } else if (turns < 0.999) {
      ++slow;
      EXPECT_EQ(scaled.data<double>()[i], near.data<double>()[i]) << i;
    }
  }
  EXPECT_EQ(fast, 29);
  EXPECT_EQ(slow, 29);
}

}  // namespace
}  // namespace elinvar::test
