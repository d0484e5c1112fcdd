#pragma once
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): random bits as a pure
// function of a key and a counter. There is no generator state to save, split or restore: (seed, step, virtual rank,
// operation, element) determine a number. NUMERICS.md, rule 17.
#include <array>
#include <cstdint>
#include <string_view>

#include "tensor/fields.h"

#ifdef __CUDACC__
#define ELINVAR_HD __host__ __device__
#else
#define ELINVAR_HD
#endif

namespace elinvar {

struct Random4 {
  uint32_t v[4];
};

ELINVAR_HD inline Random4 philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// 24 random bits as a float in [0, 1).
ELINVAR_HD inline float uniform01(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// 32 random bits as an integer in [0, n), for n up to 2^32.
inline int64_t random_below(uint32_t bits, int64_t n) {
  return static_cast<int64_t>((uint64_t{bits} * static_cast<uint64_t>(n)) >> 32);
}

// Identifies a random number in a run. `op` distinguishes the uses within one step; a forward pass numbers its random
// operations in the order in which it runs them.
struct Rng {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t vrank = 0;
  uint32_t op = 0;
  ELINVAR_FIELDS(seed, step, vrank, op)

  ELINVAR_HD Random4 block(uint32_t index) const { return philox(seed, step, vrank, op, index); }
  Rng next() { return {seed, step, vrank, op++}; }
};

// A stable 64-bit key (FNV-1a) of a name, for values that are keyed by name: initial values, streams of data.
constexpr uint64_t key_of(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace elinvar
