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

// Returns the largest x of a block to all of its threads, through shared memory: a number for each of its warps.
template <int kWarps>
__device__ inline int32_t block_largest(int32_t x, int32_t (&of_warps)[kWarps]) {
  x = warp_largest(x);
  if (lane() == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_largest(lane() < static_cast<int>(blockDim.x / 32) ? of_warps[lane()] : INT32_MIN);
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

// Writes 2 kWords elements of two rows, which are pairs of channels, as pairs of rows. The second row may be null. Both
// are at multiples of 4 kWords bytes. Elements from `count` on do not exist, if kWords is 1.
template <int kWords>
__device__ inline void interleave(const uint32_t* first, const uint32_t* second, uint32_t* to, int count) {
  struct alignas(4 * kWords) Words {
    uint32_t v[kWords];
  };
  const Words low = *reinterpret_cast<const Words*>(first),
              high = second ? *reinterpret_cast<const Words*>(second) : Words{};
  Words out[2];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    out[2 * i / kWords].v[2 * i % kWords] = (low.v[i] & 0xffffu) | high.v[i] << 16;
    out[(2 * i + 1) / kWords].v[(2 * i + 1) % kWords] = low.v[i] >> 16 | (high.v[i] & 0xffff0000u);
  }
  reinterpret_cast<Words*>(to)[0] = out[0];
  if (kWords > 1 || count > 1) reinterpret_cast<Words*>(to)[1] = out[1];
}

}  // namespace elinvar::HWY_NAMESPACE
