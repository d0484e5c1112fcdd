#pragma once
// A keyed permutation of [0, n) whose values are computed one at a time in constant time and no memory: a Feistel
// network over the smallest power of two that holds n, with Philox as its round function; values outside [0, n) walk
// on along their cycle until they are inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).
#include <cstdint>

namespace elinvar {

class Permutation {
 public:
  // Requires n >= 1. Each seed and each stream (for example an epoch) gives another permutation.
  Permutation(int64_t n, uint64_t seed, uint64_t stream);

  int64_t operator()(int64_t position) const;  // requires 0 <= position < n

 private:
  uint64_t once(uint64_t x) const;

  uint64_t n_, seed_, stream_;
  int low_bits_, high_bits_;
};

}  // namespace elinvar
