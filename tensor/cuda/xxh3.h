#pragma once
// XXH3-128 (xxHash 0.8, seed 0, its own secret) for device code: the parts with which many threads share one long input
// (tensor/ops/digest.cu), and the whole function for a short one. xxhash.h explains the steps.
#include "tensor/cuda/kernel.h"

namespace elinvar::HWY_NAMESPACE::xxh3 {

constexpr int kShortest = 241;  // inputs of at least so many bytes are long
constexpr int kLanes = 8;       // accumulators, each for every eighth word
constexpr int kStripe = 64;     // bytes, a word for each lane
constexpr int kStripes = 16;    // per block, after which accumulators are scrambled
constexpr int kBlock = kStripe * kStripes;
constexpr int kSecretWords = 24, kSecretBytes = 8 * kSecretWords, kLeastSecret = 136;

constexpr uint64_t kPrime32_1 = 0x9E3779B1u, kPrime32_2 = 0x85EBCA77u, kPrime32_3 = 0xC2B2AE3Du;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87u, kPrime64_2 = 0xC2B2AE3D27D4EB4Fu, kPrime64_3 = 0x165667B19E3779F9u,
                   kPrime64_4 = 0x85EBCA77C2B2AE63u, kPrime64_5 = 0x27D4EB2F165667C5u;

struct Hash {
  uint64_t low, high;
};

// Little-endian words of the secret.
__device__ const uint64_t kSecret[kSecretWords] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u, 0x78e5c0cc4ee679cbu,
    0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u, 0xcb00c391bb52283cu, 0xa32e531b8b65d088u,
    0x4ef90da297486471u, 0xd8acdea946ef1938u, 0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au,
    0x647378d9c97e9fc8u, 0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};

__device__ inline uint64_t read(const unsigned char* at, int bytes = 8) {
  uint64_t word = 0;
  for (int i = 0; i < bytes; ++i) word |= uint64_t{at[i]} << 8 * i;
  return word;
}
__device__ inline uint64_t swapped(uint64_t x, int bytes = 8) {
  uint64_t turned = 0;
  for (int i = 0; i < bytes; ++i) turned |= (x >> 8 * i & 0xff) << 8 * (bytes - 1 - i);
  return turned;
}
__device__ inline uint64_t shifted(uint64_t x, int by) { return x ^ x >> by; }
__device__ inline uint64_t avalanche(uint64_t x) { return shifted(shifted(x, 37) * 0x165667919E3779F9u, 32); }
__device__ inline uint64_t avalanche64(uint64_t x) {
  return shifted(shifted(shifted(x, 33) * kPrime64_2, 29) * kPrime64_3, 32);
}
__device__ inline uint64_t low32(uint64_t x) { return x & 0xffffffffu; }

__device__ inline Hash product(uint64_t a, uint64_t b) {
  const uint64_t ll = low32(a) * low32(b), hl = (a >> 32) * low32(b), lh = low32(a) * (b >> 32);
  const uint64_t cross = (ll >> 32) + low32(hl) + lh;
  return {cross << 32 | low32(ll), (hl >> 32) + (cross >> 32) + (a >> 32) * (b >> 32)};
}
__device__ inline uint64_t folded(uint64_t a, uint64_t b) {
  const Hash p = product(a, b);
  return p.low ^ p.high;
}

// --- Long inputs. A lane's part of a word, added in any order until its accumulator is scrambled.
struct Sums {
  uint64_t own = 0, neighbours = 0;  // for its accumulator, and that of lane ^ 1
  __device__ void add(uint64_t word, uint64_t secret) {
    const uint64_t keyed = word ^ secret;
    own += low32(keyed) * (keyed >> 32);
    neighbours += word;
  }
};
__device__ inline uint64_t initial(int lane) {
  constexpr uint64_t kInitial[kLanes] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                         kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  return kInitial[lane];
}
__device__ inline uint64_t scrambled(uint64_t accumulator, uint64_t secret) {
  return (shifted(accumulator, 47) ^ secret) * kPrime32_1;
}
__device__ inline uint64_t merged(const uint64_t* accumulators, const unsigned char* secret, uint64_t start) {
  for (int i = 0; i < kLanes; i += 2)
    start += folded(accumulators[i] ^ read(secret + 8 * i), accumulators[i + 1] ^ read(secret + 8 * i + 8));
  return avalanche(start);
}
__device__ inline Hash merged(const uint64_t* accumulators, const unsigned char* secret, int64_t count) {
  const auto n = static_cast<uint64_t>(count);
  return {merged(accumulators, secret + 11, n * kPrime64_1),
          merged(accumulators, secret + kSecretBytes - kStripe - 11, ~(n * kPrime64_2))};
}

// --- Short inputs, of 1 to 240 bytes.
__device__ inline Hash of_3(const unsigned char* x, int n, const unsigned char* secret) {
  const uint64_t low =
      uint64_t{x[0]} << 16 | uint64_t{x[n / 2]} << 24 | uint64_t{x[n - 1]} | static_cast<uint64_t>(n) << 8;
  const uint64_t turned = swapped(low, 4), high = low32(turned << 13 | turned >> 19);
  return {avalanche64(low ^ read(secret, 4) ^ read(secret + 4, 4)),
          avalanche64(high ^ read(secret + 8, 4) ^ read(secret + 12, 4))};
}
__device__ inline Hash of_8(const unsigned char* x, int n, const unsigned char* secret) {
  const uint64_t word = read(x, 4) | read(x + n - 4, 4) << 32;
  Hash m = product(word ^ read(secret + 16) ^ read(secret + 24), kPrime64_1 + 4 * static_cast<uint64_t>(n));
  m.high += m.low << 1;
  m.low ^= m.high >> 3;
  return {shifted(shifted(m.low, 35) * 0x9FB21C651E98DF25u, 28), avalanche(m.high)};
}
__device__ inline Hash of_16(const unsigned char* x, int n, const unsigned char* secret) {
  const uint64_t last = read(x + n - 8), keyed = last ^ read(secret + 48) ^ read(secret + 56);
  Hash m = product(read(x) ^ last ^ read(secret + 32) ^ read(secret + 40), kPrime64_1);
  m.low += static_cast<uint64_t>(n - 1) << 54;
  m.high += keyed + low32(keyed) * (kPrime32_2 - 1);
  m.low ^= swapped(m.high);
  const Hash h = product(m.low, kPrime64_2);
  return {avalanche(h.low), avalanche(h.high + m.high * kPrime64_2)};
}
__device__ inline uint64_t mixed(const unsigned char* x, const unsigned char* secret) {
  return folded(read(x) ^ read(secret), read(x + 8) ^ read(secret + 8));
}
__device__ inline void mix(Hash& h, const unsigned char* a, const unsigned char* b, const unsigned char* secret) {
  h.low = (h.low + mixed(a, secret)) ^ (read(b) + read(b + 8));
  h.high = (h.high + mixed(b, secret + 16)) ^ (read(a) + read(a + 8));
}
__device__ inline Hash finished(const Hash& h, int n) {
  const uint64_t high = h.low * kPrime64_1 + h.high * kPrime64_4 + static_cast<uint64_t>(n) * kPrime64_2;
  return {avalanche(h.low + h.high), uint64_t{0} - avalanche(high)};
}
__device__ inline Hash of_128(const unsigned char* x, int n, const unsigned char* secret) {
  Hash h{static_cast<uint64_t>(n) * kPrime64_1, 0};
  for (int i = (n - 1) / 32; i >= 0; --i) mix(h, x + 16 * i, x + n - 16 * (i + 1), secret + 32 * i);
  return finished(h, n);
}
// The seed of the last piece is minus zero, which is zero.
__device__ inline Hash of_240(const unsigned char* x, int n, const unsigned char* secret) {
  Hash h{static_cast<uint64_t>(n) * kPrime64_1, 0};
  for (int i = 0; i < 4; ++i) mix(h, x + 32 * i, x + 32 * i + 16, secret + 32 * i);
  h = {avalanche(h.low), avalanche(h.high)};
  for (int i = 4; i < n / 32; ++i) mix(h, x + 32 * i, x + 32 * i + 16, secret + 3 + 32 * (i - 4));
  mix(h, x + n - 16, x + n - 32, secret + kLeastSecret - 17 - 16);
  return finished(h, n);
}
__device__ inline Hash of_short(const unsigned char* x, int n, const unsigned char* secret) {
  return n <= 3    ? of_3(x, n, secret)
         : n <= 8  ? of_8(x, n, secret)
         : n <= 16 ? of_16(x, n, secret)
         : n < 129 ? of_128(x, n, secret)
                   : of_240(x, n, secret);
}

}  // namespace elinvar::HWY_NAMESPACE::xxh3
