#pragma once
// The product of a warp on tensor cores: D (16, 8) += A (16, 16) B (16, 8), bfloat16 factors, float32 sums (PTX ISA,
// "mma.m16n8k16"; compute capability 8.0 and up). Each matrix is distributed over the lanes; lane 4 g + t holds:
//   A   pairs along k: rows g and g + 8 at k = 2 t, then the same rows at k = 2 t + 8
//   B   pairs along k: column g at k = 2 t and at k = 2 t + 8
//   D   row g, columns 2 t and 2 t + 1; row g + 8, the same columns
// and D (16, 8) += A (16, 32) B (32, 8), integers of 8 bits, of which either factor has a sign or not, int32 sums,
// which wrap around ("mma.m16n8k32"). There a lane holds fours along k, where the other product has pairs:
//   A   rows g and g + 8 at k = 4 t, then the same rows at k = 4 t + 16
//   B   column g at k = 4 t and at k = 4 t + 16
// Factors are read from shared memory by cuda/shared_rows.h. Under emulation, lanes exchange what they hold in the same
// layout, so that wrong loads are found; float32 sums are chains of fma there, which is not the order of the hardware.
#include <cmath>

#include "tensor/cuda/elements.h"

namespace elinvar::HWY_NAMESPACE {

struct FactorA {
  uint32_t pair[4];
};
struct FactorB {
  uint32_t pair[2];
};
struct TwoFactorsB {
  FactorB first, second;
};
struct Sums {
  float at[4] = {};
};

struct BytesA {
  uint32_t four[4];
};
struct BytesB {
  uint32_t four[2];
};
struct IntegerSums {
  int32_t at[4] = {};
};

__device__ inline int lane_group() { return static_cast<int>(threadIdx.x % 32) / 4; }     // g
__device__ inline int lane_in_group() { return static_cast<int>(threadIdx.x % 32) % 4; }  // t

// Sums of columns 16 i .. 16 i + 7 and of the next 8 as a factor of a product over these columns.
__device__ inline FactorA as_factor(const Sums& first, const Sums& second) {
  return {{rounded_pair(first.at[0], first.at[1]), rounded_pair(first.at[2], first.at[3]),
           rounded_pair(second.at[0], second.at[1]), rounded_pair(second.at[2], second.at[3])}};
}

__device__ inline void multiply_add(Sums& d, const FactorA& a, const FactorB& b) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d.at[0]), "+f"(d.at[1]), "+f"(d.at[2]), "+f"(d.at[3])
      : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]), "r"(b.pair[1]));
#else
  const auto value = [](uint64_t pairs, int half) {
    return static_cast<float>(std::bit_cast<bf16>(static_cast<uint16_t>(pairs >> (16 * half))));
  };
  const auto both = [](uint32_t low, uint32_t high) { return uint64_t{low} | uint64_t{high} << 32; };
  uint64_t near[4], far[4],
      column[2][4];  // of row g, of row g + 8, of columns 2 t and 2 t + 1: by the lane they come from
  for (int t = 0; t < 4; ++t) {
    near[t] = emulation::exchange(both(a.pair[0], a.pair[2]), 4 * lane_group() + t);
    far[t] = emulation::exchange(both(a.pair[1], a.pair[3]), 4 * lane_group() + t);
    for (int c = 0; c < 2; ++c)
      column[c][t] = emulation::exchange(both(b.pair[0], b.pair[1]), 4 * (2 * lane_in_group() + c) + t);
  }
  for (int k = 0; k < 16; ++k) {
    const int t = k % 8 / 2, half = k / 8 * 2 + k % 2;
    for (int c = 0; c < 2; ++c) {
      d.at[c] = std::fma(value(near[t], half), value(column[c][t], half), d.at[c]);
      d.at[2 + c] = std::fma(value(far[t], half), value(column[c][t], half), d.at[2 + c]);
    }
  }
#endif
}

template <bool kSignedA, bool kSignedB>
__device__ void multiply_add(IntegerSums& d, const BytesA& a, const BytesB& b) {
#ifdef __CUDACC__
#define ELINVAR_MULTIPLY_BYTES(of_a, of_b)                                            \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." of_a "." of_b                 \
               ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+r"(d.at[0]), "+r"(d.at[1]), "+r"(d.at[2]), "+r"(d.at[3])           \
               : "r"(a.four[0]), "r"(a.four[1]), "r"(a.four[2]), "r"(a.four[3]), "r"(b.four[0]), "r"(b.four[1]))
  if constexpr (kSignedA && kSignedB) ELINVAR_MULTIPLY_BYTES("s8", "s8");
  else if constexpr (kSignedA) ELINVAR_MULTIPLY_BYTES("s8", "u8");
  else if constexpr (kSignedB) ELINVAR_MULTIPLY_BYTES("u8", "s8");
  else ELINVAR_MULTIPLY_BYTES("u8", "u8");
#undef ELINVAR_MULTIPLY_BYTES
#else
  emulation::multiply_bytes(d.at, a.four, b.four, kSignedA, kSignedB);
#endif
}

}  // namespace elinvar::HWY_NAMESPACE
