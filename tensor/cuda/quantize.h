#pragma once
// Rounding to the integers of exact products (NUMERICS.md, rule E2) on a GPU. Magnitudes are compared as bits, which
// orders NaN above infinity.
#include "tensor/cuda/reduce.h"
#include "tensor/ops/quantize.h"

namespace elinvar::HWY_NAMESPACE {

__device__ inline int32_t magnitude(float x) { return std::bit_cast<int32_t>(x) & 0x7fffffff; }
__device__ inline int32_t larger(int32_t a, int32_t b) { return a < b ? b : a; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }

__device__ inline int32_t warp_largest(int32_t x) {
  for (int s = 16; s > 0; s /= 2) x = larger(x, __shfl_xor_sync(kWholeWarp, x, s));
  return x;
}

// x as an integer: to nearest, ties to even. What is not finite gives 0. The sum has the integer in its lowest bits.
__device__ inline int32_t quantized(float x) {
  constexpr float kOne = 12582912.0f;  // 1.5 2^23, whose neighbours differ by 1
  constexpr auto kMost = static_cast<float>(kMostQuantized + 1);
  const float finite = x >= -kMost && x <= kMost ? x : 0.0f;
  const int32_t q = std::bit_cast<int32_t>(finite + kOne) - std::bit_cast<int32_t>(kOne);
  return q > kMostQuantized ? kMostQuantized : q < -kMostQuantized ? -kMostQuantized : q;
}

__device__ inline uint32_t pair_of(int32_t first, int32_t second) {
  return (static_cast<uint32_t>(first) & 0xffffu) | static_cast<uint32_t>(second) << 16;
}

}  // namespace elinvar::HWY_NAMESPACE
