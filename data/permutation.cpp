#include "data/permutation.h"

#include <bit>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {
// Four rounds are enough for a large domain (Luby and Rackoff); small ones need more to reach most permutations.
constexpr uint32_t kRounds = 8;
}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t stream)
    : n_(static_cast<uint64_t>(n)), seed_(seed ^ key_of("data.permutation")), stream_(stream) {
  check(n >= 1, "[permutation] expected at least one element, got {}", n);
  const int bits = std::bit_width(n_ - 1);
  low_bits_ = (bits + 1) / 2;
  high_bits_ = bits / 2;
}

uint64_t Permutation::once(uint64_t x) const {
  uint64_t low = x & ((uint64_t{1} << low_bits_) - 1), high = x >> low_bits_;
  int low_bits = low_bits_, high_bits = high_bits_;
  for (uint32_t round = 0; round < kRounds; ++round) {
    // Halves are at most 32 bits wide.
    const Random4 r = philox(seed_, static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32), round,
                             static_cast<uint32_t>(low));
    high ^= r.v[0] & ((uint64_t{1} << high_bits) - 1);
    std::swap(low, high);
    std::swap(low_bits, high_bits);
  }
  return high << low_bits_ | low;  // after an even number of rounds the halves have their widths again
}

int64_t Permutation::operator()(int64_t position) const {
  auto x = static_cast<uint64_t>(position);
  invariant(x < n_, "a position lies inside its permutation");
  do x = once(x);
  while (x >= n_);
  return static_cast<int64_t>(x);
}

}  // namespace elinvar
