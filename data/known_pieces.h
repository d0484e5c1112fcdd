#pragma once
// Remembers the tokens of pieces of text that were encoded before. A table with open addressing points into one store,
// in which a piece's tokens precede its bytes.
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/digest.h"

namespace elinvar {

class KnownPieces {
 public:
  static constexpr size_t kMostBytes = 32;                // longer pieces seldom recur
  static constexpr size_t kMostPieces = size_t{1} << 18;  // further pieces are not remembered

  // Returns the tokens of a piece; empty if it is not known.
  std::span<const int32_t> find(std::string_view piece) const {
    const Entry& entry = entries_[place_of(piece, hash_of(piece))];
    return {store_.data() + entry.at, entry.tokens};
  }

  // Adds a piece of 1 to kMostBytes bytes that is not known; it has at most as many tokens as bytes.
  void add(std::string_view piece, std::span<const int32_t> tokens) {
    if (pieces_ == kMostPieces) return;
    if (2 * ++pieces_ > entries_.size()) grow();
    const uint32_t hash = hash_of(piece);
    entries_[place_of(piece, hash)] = {hash, static_cast<uint32_t>(store_.size()), static_cast<uint16_t>(tokens.size()),
                                       static_cast<uint16_t>(piece.size())};
    store_.insert(store_.end(), tokens.begin(), tokens.end());
    const size_t at = store_.size();
    store_.resize(at + (piece.size() + sizeof(int32_t) - 1) / sizeof(int32_t));
    std::memcpy(store_.data() + at, piece.data(), piece.size());
  }

 private:
  struct Entry {
    uint32_t hash = 0, at = 0;       // where its tokens begin
    uint16_t tokens = 0, bytes = 0;  // no tokens: free
  };

  static uint32_t hash_of(std::string_view piece) {
    return static_cast<uint32_t>(digest_bytes(piece.data(), piece.size()).low);
  }

  // The index of the piece's entry, or of the free entry for it.
  size_t place_of(std::string_view piece, uint32_t hash) const {
    for (size_t place = hash;; ++place) {
      const Entry& entry = entries_[place &= entries_.size() - 1];
      if (entry.tokens == 0) return place;
      if (entry.hash == hash && entry.bytes == piece.size() &&
          std::memcmp(store_.data() + entry.at + entry.tokens, piece.data(), piece.size()) == 0)
        return place;
    }
  }

  void grow() {
    const std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    for (const Entry& entry : before) {
      if (entry.tokens == 0) continue;
      size_t place = entry.hash & (entries_.size() - 1);
      while (entries_[place].tokens != 0) place = (place + 1) & (entries_.size() - 1);
      entries_[place] = entry;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << 12);  // a power of two
  std::vector<int32_t> store_;
  size_t pieces_ = 0;
};

}  // namespace elinvar
