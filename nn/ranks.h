#pragma once
// Places in an order of scores, from the highest to the lowest. Equal scores keep the order of their indices, and NaN
// comes last.
#include <cstdint>
#include <span>

namespace elinvar {

// Returns how many of the scores come before that of `index`.
inline int64_t rank_of(std::span<const float> scores, int64_t index) {
  const auto n = static_cast<int64_t>(scores.size());
  const float own = scores[static_cast<size_t>(index)];
  if (own != own) return n;
  int64_t above = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float other = scores[static_cast<size_t>(i)];
    above += other > own || (other == own && i < index);
  }
  return above;
}

}  // namespace elinvar
