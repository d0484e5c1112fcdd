#include "data/bpe_trainer.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <set>

#include "data/byte_characters.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& p) const {
    const uint64_t both = static_cast<uint64_t>(p.first) << 32 | static_cast<uint32_t>(p.second);
    return static_cast<size_t>(both * 0x9E3779B97F4A7C15u >> 16);
  }
};

struct Piece {
  std::vector<int32_t> tokens;
  int64_t count = 0;
};

struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

// Counts the pairs of neighbouring tokens, and updates the counts as pairs merge.
class Merging {
 public:
  explicit Merging(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    for (size_t i = 0; i < pieces_.size(); ++i)
      for (size_t at = 0; at + 1 < pieces_[i].tokens.size(); ++at)
        change(i, {pieces_[i].tokens[at], pieces_[i].tokens[at + 1]}, pieces_[i].count);
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  }

  // Returns the most frequent pair and its count. If no pair is left, the count is 0.
  Candidate best() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const int64_t now = counts_[top.pair];
      if (now == top.count) return top;
      if (now > 0) queue_.push({now, top.pair});  // the queued count is outdated; the pair has become rarer
    }
    return {0, {}};
  }

  void merge(const Pair& pair, int32_t token) {
    const std::vector<size_t> where = std::exchange(where_[pair], {});
    touched_.clear();
    for (const size_t i : where) {
      // Writes the merged tokens over the piece from its beginning: [0, end) is done, and tokens from `at` on are
      // unchanged.
      std::vector<int32_t>& tokens = pieces_[i].tokens;
      const int64_t count = pieces_[i].count;
      size_t end = 0;
      for (size_t at = 0; at < tokens.size();) {
        if (at + 1 == tokens.size() || Pair(tokens[at], tokens[at + 1]) != pair) {
          tokens[end++] = tokens[at++];
          continue;
        }
        const bool before = end > 0, after = at + 2 < tokens.size();
        if (before) change(i, {tokens[end - 1], pair.first}, -count);
        change(i, pair, -count);
        if (after) change(i, {pair.second, tokens[at + 2]}, -count);
        if (before) change(i, {tokens[end - 1], token}, count);
        if (after) change(i, {token, tokens[at + 2]}, count);
        tokens[end++] = token;
        at += 2;
      }
      tokens.resize(end);
    }
    for (const Pair& p : touched_) queue_.push({counts_[p], p});
  }

 private:
  void change(size_t i, const Pair& pair, int64_t by) {
    counts_[pair] += by;
    if (by < 0) return;
    std::vector<size_t>& where = where_[pair];
    if (where.empty() || where.back() != i) where.push_back(i);
    touched_.insert(pair);
  }

  std::vector<Piece> pieces_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<size_t>, PairHash> where_;  // indices of pieces that have, or had, the pair
  std::priority_queue<Candidate> queue_;
  std::set<Pair> touched_;
};

}  // namespace

BpeTrainer::BpeTrainer(BpeTraining options) : options_(std::move(options)) {
  check(options_.vocabulary >= 256 + static_cast<int64_t>(options_.specials.size()),
        "[tokenizer] a vocabulary of {} is too small: expected the 256 bytes and {} special tokens at least",
        options_.vocabulary, options_.specials.size());
}

void BpeTrainer::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(options_.pretokens, text, at);
    const std::string_view piece = text.substr(at, end - at);
    const auto found = pieces_.find(piece);
    if (found != pieces_.end()) ++found->second;
    else pieces_.emplace(piece, 1);
    at = end;
  }
}

Bpe BpeTrainer::train() const {
  BpeParts parts{.tokens = {}, .merges = {}, .pretokens = options_.pretokens};
  std::vector<int32_t> order(256), token_of(256);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [](int32_t byte) { return characters_of_bytes()[static_cast<size_t>(byte)]; });
  for (const int32_t byte : order) {
    token_of[static_cast<size_t>(byte)] = static_cast<int32_t>(parts.tokens.size());
    parts.tokens.emplace_back(1, static_cast<char>(static_cast<unsigned char>(byte)));
  }
  std::vector<Piece> pieces;
  for (const auto& [bytes, count] : pieces_) {
    Piece piece{.tokens = {}, .count = count};
    for (const char c : bytes) piece.tokens.push_back(token_of[static_cast<unsigned char>(c)]);
    pieces.push_back(std::move(piece));
  }
  Merging merging(std::move(pieces));
  const auto most = static_cast<size_t>(options_.vocabulary) - options_.specials.size();
  std::map<std::string, int32_t> known;
  while (parts.tokens.size() < most) {
    const Candidate best = merging.best();
    if (best.count < std::max<int64_t>(1, options_.min_count)) break;
    const auto [left, right] = best.pair;
    std::string bytes = parts.tokens[static_cast<size_t>(left)] + parts.tokens[static_cast<size_t>(right)];
    // Two different merges may make the same bytes; both then yield one token.
    const auto [place, added] = known.emplace(bytes, static_cast<int32_t>(parts.tokens.size()));
    if (added) parts.tokens.push_back(std::move(bytes));
    parts.merges.push_back(best.pair);
    merging.merge(best.pair, place->second);
  }
  for (const std::string& name : options_.specials) {
    parts.specials.emplace(name, static_cast<int32_t>(parts.tokens.size()));
    parts.tokens.push_back(name);
  }
  return Bpe(std::move(parts));
}

}  // namespace elinvar
