#pragma once
// Numbers as a GPU makes them: NaN has one form, and bfloat16 is the upper half of a float32.
#include <bit>
#include <cstdint>

namespace elinvar::ptx {

inline float canonical(float x) { return x != x ? std::bit_cast<float>(0x7fffffffu) : x; }
inline double canonical(double x) { return x; }

// Rounds to nearest, ties to even.
inline uint16_t bits_of_bf16(float x) {
  if (x != x) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float float_of_bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

}  // namespace elinvar::ptx
