// The canonical mathematics: exp, expm1, log, log1p, tanh, erf, sin and cos of float32 as fixed sequences of operations
// (NUMERICS.md, rule 5), so that they have the same bits on every target. Each sequence below is the specification;
// tests/tensor/math_test.cpp holds a hash of each function over all 2^32 inputs. The largest errors over all inputs, in
// units in the last place of the exact result:
//
//   exp 0.98   expm1 1.44   log 0.89   log1p 1.44   tanh 1.34   erf 1.11   sin 1.67   cos 1.81
//
// Special values follow IEEE 754: exp(-inf) = +0, expm1(-inf) = -1, log(+-0) = log1p(-1) = -inf, log of a negative
// number and sin, cos of an infinity are NaN, odd functions, expm1 and log1p keep the sign of zero, subnormals are
// neither read nor written as zero, and NaN gives NaN.
//
// Polynomials are minimax (Remez exchange, weighted for relative error of the result) with coefficients rounded to
// float32 one after the other, lowest degree first, the rest being fitted again each time; log's last bits were then
// searched for a smaller error.
//
// For float64 lanes they are the C library's: float64 exists to check gradients, and its bits are not guaranteed.
#if defined(ELINVAR_TENSOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_MATH_INL_H_
#undef ELINVAR_TENSOR_MATH_INL_H_
#else
#define ELINVAR_TENSOR_MATH_INL_H_
#endif

#include <limits>

#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

HWY_INLINE Vec<double> exp(Vec<double> x) { return {std::exp(x.v)}; }
HWY_INLINE Vec<double> expm1(Vec<double> x) { return {std::expm1(x.v)}; }
HWY_INLINE Vec<double> log(Vec<double> x) { return {std::log(x.v)}; }
HWY_INLINE Vec<double> log1p(Vec<double> x) { return {std::log1p(x.v)}; }
HWY_INLINE Vec<double> tanh(Vec<double> x) { return {std::tanh(x.v)}; }
HWY_INLINE Vec<double> erf(Vec<double> x) { return {std::erf(x.v)}; }
HWY_INLINE Vec<double> sin(Vec<double> x) { return {std::sin(x.v)}; }
HWY_INLINE Vec<double> cos(Vec<double> x) { return {std::cos(x.v)}; }

namespace float_math {

using V = Vec<float>;
using I = FloatBits;

// c[0] + x (c[1] + x (c[2] + ...)), one fma per step.
template <size_t n>
HWY_INLINE V polynomial(V x, const float (&c)[n]) {
  V y = V::set(c[n - 1]);
  for (size_t i = n - 1; i > 0; --i) y = fma(y, x, V::set(c[i - 1]));
  return y;
}

// Adding 1.5 * 2^23 rounds to an integer (ties to even), which is then in the low bits of the sum.
constexpr float kRounder = 0x1.8p23f;
constexpr int32_t kRounderBits = 0x4b400000, kOneBits = 0x3f800000, kSign = std::numeric_limits<int32_t>::min();

HWY_INLINE V power_of_two(I n) { return float_of(shift_left<23>(n) + I::set(kOneBits)); }  // -127 < n < 128

// x = n ln 2 + r, |r| <= ln(2) / 2: returns exp(r) - 1, relatively exact, and n. |x| < 2^20.
struct ReducedExp {
  V minus_one;
  I n;
};
HWY_INLINE ReducedExp reduced_exp(V x) {
  const V t = fma(x, V::set(0x1.715476p+0f), V::set(kRounder));
  const V n = t - V::set(kRounder);
  V r = fma(n, V::set(-0x1.62e43p-1f), x);  // ln 2 in two parts
  r = fma(n, V::set(0x1.05c610p-29f), r);
  constexpr float kQ[] = {0x1.0p-1f, 0x1.555554p-3f, 0x1.5554eap-5f, 0x1.1113acp-7f, 0x1.6d4c6p-10f, 0x1.9c5f98p-13f};
  return {fma(r * r, polynomial(r, kQ), r), bits_of(t) - I::set(kRounderBits)};
}

}  // namespace float_math

// 2^n exp(r), multiplied in two steps so that subnormal results are rounded once.
HWY_INLINE Vec<float> exp(Vec<float> x) {
  using namespace float_math;
  const V low = V::set(-105.0f), high = V::set(90.0f);  // beyond them the result is 0 or infinite
  x = select(x < low, low, x);
  x = select(high < x, high, x);
  const ReducedExp e = reduced_exp(x);
  const I half = shift_right<1>(e.n);
  return ((V::set(1.0f) + e.minus_one) * power_of_two(half)) * power_of_two(e.n - half);
}

// exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1), all of it halved, so that no factor overflows, and doubled at the end.
HWY_INLINE Vec<float> expm1(Vec<float> x) {
  using namespace float_math;
  const V low = V::set(-20.0f), high = V::set(89.0f);  // beyond them the result is -1 or infinite
  V a = select(x < low, low, x);
  a = select(high < a, high, a);
  const ReducedExp e = reduced_exp(a);
  const V half = power_of_two(e.n - I::set(1));
  const V y = fma(half, e.minus_one, half - V::set(0.5f));
  return select(abs(x) < V::set(0x1p-25f), x, y + y);
}

// x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). With f + e ln 2 kept as a pair (s, d) the sum is rounded once:
// log x = s + (f^2 q(f) + (d + e ln2_low)).
HWY_INLINE Vec<float> log(Vec<float> x) {
  using namespace float_math;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int32_t kRootHalfBits = 0x3f3504f3;
  const V zero = V::set(0.0f);
  const auto subnormal = x < V::set(0x1p-126f);
  const I bits = bits_of(select(subnormal, x * V::set(0x1p23f), x)) - I::set(kRootHalfBits);
  const V e = to_float(shift_right<23>(bits)) - select(subnormal, V::set(23.0f), zero);
  const V f = float_of((bits & I::set(0x007fffff)) + I::set(kRootHalfBits)) - V::set(1.0f);
  const V a = e * V::set(0x1.62e4p-1f);  // exact: 15 bits times 8
  const V s = a + f, d = f - (s - a);
  constexpr float kQ[] = {-0x1.0p-1f,     0x1.55555p-2f,   -0x1.00021ep-2f, 0x1.99a04cp-3f, -0x1.54725p-3f,
                          0x1.22d586p-3f, -0x1.0d88d6p-3f, 0x1.05c4c4p-3f,  -0x1.3a2e0ep-4f};
  const V y = s + fma(f * f, polynomial(f, kQ), fma(e, V::set(0x1.7f7d1cp-20f), d));
  const V finite =
      select(x < zero, V::set(std::numeric_limits<float>::quiet_NaN()), select(x == zero, V::set(-kInfinity), y));
  return select(x < V::set(kInfinity), finite, x);
}

// With w = 1 + x, rounded: log(w) + (x - (w - 1)) / w. The second term corrects the rounding.
HWY_INLINE Vec<float> log1p(Vec<float> x) {
  const Vec<float> one = Vec<float>::set(1.0f), zero = Vec<float>::set(0.0f), w = one + x;
  const Vec<float> lost = x - (w - one);
  const Vec<float> y = log(w) + select(lost == zero, zero, lost / w);
  const auto finite = x < Vec<float>::set(std::numeric_limits<float>::infinity());
  return select(mask_and(finite, mask_not(w == one)), y, x);
}

// |x| < 5/8: x + x (x^2 p(x^2)); above: 1 - 2 / (exp(2 |x|) + 1).
HWY_INLINE Vec<float> tanh(Vec<float> x) {
  using namespace float_math;
  const V one = V::set(1.0f), ten = V::set(10.0f), magnitude = abs(x);
  const V a = select(ten < magnitude, ten, magnitude);  // tanh is 1 from 9.02 on
  constexpr float kP[] = {-0x1.555532p-2f, 0x1.1106f6p-3f, -0x1.b835a4p-5f, 0x1.51f8cep-6f, -0x1.750ce2p-8f};
  const V z = a * a;
  const V small = fma(a, z * polynomial(z, kP), a);
  const ReducedExp e = reduced_exp(a + a);
  const V scale = power_of_two(e.n);
  const V large = one - V::set(2.0f) / (fma(scale, e.minus_one, scale) + one);
  const V y = select(a < V::set(0.625f), small, large);
  return float_of(bits_of(y) | (bits_of(x) & I::set(kSign)));
}

// |x| < 15/16: x + x p(x^2); above: 1 - exp(-g), g(|x|) approximating -log(erfc(|x|)), up to 4 where erf is 1.
HWY_INLINE Vec<float> erf(Vec<float> x) {
  using namespace float_math;
  const V four = V::set(4.0f), magnitude = abs(x);
  const V a = select(four < magnitude, four, magnitude);
  constexpr float kP[] = {0x1.06eba8p-3f, -0x1.812740p-2f,  0x1.ce2d64p-4f, -0x1.b80120p-6f,
                          0x1.544aa8p-8f, -0x1.a6126ep-11f, 0x1.4f8e58p-14f};
  constexpr float kG[] = {0x1.d4b848p-13f, 0x1.20a7dcp+0f, 0x1.4655d6p-1f,  0x1.a905p-4f,
                          -0x1.6ada68p-6f, 0x1.8c4254p-9f, -0x1.96a7f4p-13f};
  const V small = fma(a, polynomial(a * a, kP), a);
  const ReducedExp e = reduced_exp(neg(polynomial(a, kG)));
  const V scale = power_of_two(e.n);
  const V large = V::set(1.0f) - fma(scale, e.minus_one, scale);
  const V y = select(a < V::set(0.9375f), small, large);
  return float_of(bits_of(y) | (bits_of(x) & I::set(kSign)));
}

namespace float_math {

// An angle a >= 0 as a = q pi/2 + r with r in about [-pi/4, pi/4]; q mod 4 is in the low bits of `turns`.
struct Quadrant {
  V r;
  V turns;
};

// Reduces one lane of any magnitude: multiplies the 24 bits of a by those 96 bits of 2/pi that matter modulo 4, in
// integers (Payne and Hanek, "Radian reduction for trigonometric functions", 1983).
HWY_INLINE void reduce_lane(float a, float& r, float& turns) {
  const uint32_t bits = std::bit_cast<uint32_t>(a);
  const int exponent = static_cast<int>(bits >> 23) - 150;
  if (exponent == 105) {
    r = turns = a - a;  // NaN
    return;
  }
  // 2/pi after 32 zero bits.
  constexpr uint32_t kTwoOverPi[] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                     0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
  const int first = exponent + 30, word = first >> 5, shift = first & 31;  // exponent >= -30
  uint32_t w[3];
  for (int i = 0; i < 3; ++i) {
    const uint64_t pair = uint64_t{kTwoOverPi[word + i]} << 32 | kTwoOverPi[word + i + 1];
    w[i] = static_cast<uint32_t>(pair << shift >> 32);
  }
  const uint64_t m = (bits & 0x007fffffu) | 0x00800000u;
  const uint64_t p0 = m * w[2], p1 = m * w[1] + (p0 >> 32), p2 = m * w[0] + (p1 >> 32);
  const uint64_t product = p2 << 32 | (p1 & 0xffffffffu);  // in units of 2^-62 quarter turns, modulo 4
  const uint64_t fraction = product << 2;
  const bool above_half = fraction >> 63 != 0;
  const uint64_t quarter = (product >> 62) + (above_half ? 1 : 0);
  uint64_t magnitude = above_half ? ~fraction + 1 : fraction;
  int32_t scale = -1;
  for (; magnitude >> 63 == 0 && scale > -64; --scale) magnitude <<= 1;
  const float high = static_cast<float>(magnitude >> 40),
              low = static_cast<float>(magnitude >> 16 & 0xffffffu) * 0x1p-24f;
  const float product_high = std::fma(high, 0x1.921fb6p+0f, std::fma(high, -0x1.777a5cp-25f, low * 0x1.921fb6p+0f));
  r = product_high * std::bit_cast<float>((scale - 23 + 127) << 23);
  if (above_half) r = -r;
  turns = kRounder + static_cast<float>(quarter & 3);
}

// From here on the fast reduction loses bits.
constexpr float kHuge = 0x1p20f;

inline HWY_NOINLINE void reduce_huge_lanes(const float* a, float* r, float* turns) {
  for (int64_t i = 0; i < V::kLanes; ++i)
    if (a[i] >= kHuge) reduce_lane(a[i], r[i], turns[i]);
}

// For a < kHuge: subtracts q pi/2 in three parts (Cody and Waite); the first subtraction is exact.
HWY_INLINE Quadrant reduce_angle(V a) {
  const V turns = fma(a, V::set(0x1.45f306p-1f), V::set(kRounder));
  const V n = turns - V::set(kRounder);
  V r = fma(n, V::set(-0x1.921fb6p+0f), a);
  r = fma(n, V::set(0x1.777a5cp-25f), r);
  r = fma(n, V::set(0x1.ee59dap-50f), r);
  if (any(V::set(kHuge) <= a)) [[unlikely]] {
    float lanes[3][V::kLanes];
    a.store(lanes[0]);
    r.store(lanes[1]);
    turns.store(lanes[2]);
    reduce_huge_lanes(lanes[0], lanes[1], lanes[2]);
    return {V::load(lanes[1]), V::load(lanes[2])};
  }
  return {r, turns};
}

// The sine of q pi/2 + r, negative where bit 31 of `sign` is set: in odd quadrants the cosine of r, in the upper half
// turn negative.
HWY_INLINE V sine_of(V r, I q, I sign) {
  constexpr float kSine[] = {-0x1.555556p-3f, 0x1.11117p-7f, -0x1.a053f2p-13f, 0x1.7a86b2p-19f};
  constexpr float kCosine[] = {0x1.555548p-5f, -0x1.6c0af4p-10f, 0x1.99911cp-16f};
  const V one = V::set(1.0f), z = r * r;
  const V sine = fma(r * z, polynomial(z, kSine), r);
  const V cosine = fma(z * z, polynomial(z, kCosine), fma(z, V::set(-0.5f), one));
  const auto odd = float_of(shift_left<31>(q) | I::set(kOneBits)) < V::set(0.0f);
  const I upper = shift_left<30>(q) & I::set(kSign);
  return select(odd, cosine, sine) * float_of(I::set(kOneBits) | (upper + (sign & I::set(kSign))));
}

}  // namespace float_math

HWY_INLINE Vec<float> sin(Vec<float> x) {
  const float_math::Quadrant a = float_math::reduce_angle(abs(x));
  return float_math::sine_of(a.r, bits_of(a.turns), bits_of(x));
}

// sin(x + pi/2)
HWY_INLINE Vec<float> cos(Vec<float> x) {
  const float_math::Quadrant a = float_math::reduce_angle(abs(x));
  return float_math::sine_of(a.r, bits_of(a.turns) + FloatBits::set(1), FloatBits::set(0));
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
