#pragma once
// Tells which pairs of neighbouring tokens merge; a table with open addressing for the encoder's innermost loop.
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace elinvar {

class MergeTable {
 public:
  struct Merge {
    int32_t rank, token;  // the lowest rank merges first; the token that the pair becomes
  };

  MergeTable() = default;
  explicit MergeTable(size_t merges) : entries_(std::bit_ceil(2 * merges + 2)) {}

  // Adds a merge, unless the pair already has one; at most as many pairs as given to the constructor.
  void add(int32_t left, int32_t right, Merge merge) {
    Entry& entry = entries_[place_of(left, right)];
    if (entry.left < 0) entry = {left, right, merge};
  }
  // Returns null if the pair does not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const Entry& entry = entries_[place_of(left, right)];
    return entry.left < 0 ? nullptr : &entry.merge;
  }

 private:
  struct Entry {
    int32_t left = -1, right = -1;
    Merge merge{};
  };

  // The index of the pair's entry, or of the free entry for it.
  size_t place_of(int32_t left, int32_t right) const {
    const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    size_t place = static_cast<size_t>(pair * 0x9E3779B97F4A7C15u >> 32);
    for (;; ++place) {
      const Entry& entry = entries_[place &= entries_.size() - 1];
      if (entry.left < 0 || (entry.left == left && entry.right == right)) return place;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(2);
};

}  // namespace elinvar
