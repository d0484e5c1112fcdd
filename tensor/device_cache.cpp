#include "tensor/device_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tensor/heap.h"

namespace elinvar {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLargestSmall = kMiB, kSmallSegment = 2 * kMiB, kLargeSegment = 32 * kMiB;

std::string text_of(double bytes) {
  constexpr double kGiB = 1024.0 * kMiB;
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", bytes / kGiB);
  if (bytes >= 10.0 * kMiB) return fmt::format("{:.0f} MiB", bytes / kMiB);
  return fmt::format("{:.2f} MiB", bytes / kMiB);
}

}  // namespace

DeviceCache::Pieces::iterator DeviceCache::add_segment(size_t bytes, bool small) {
  char* begin = static_cast<char*>(source_.take(bytes));
  if (begin == nullptr) return pieces_.end();
  ++stats_.system_calls;
  held_ += static_cast<int64_t>(bytes);
  free_of(small).emplace(bytes, begin);
  return pieces_.emplace(begin, Piece{bytes, begin, small, false}).first;
}

// A free piece that begins its segment is the whole segment if the next piece is another segment's, or missing.
void DeviceCache::give_back_whole_segments() {
  source_.settle();
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const auto next = std::next(piece);
    const auto& [begin, p] = *piece;
    if (!p.used && begin == p.segment && (next == pieces_.end() || next->second.segment != p.segment)) {
      source_.give(begin);
      held_ -= static_cast<int64_t>(p.bytes);
      free_of(p.small).erase({p.bytes, begin});
      pieces_.erase(piece);
    }
    piece = next;
  }
}

void DeviceCache::give_back() {
  const std::lock_guard lock(mutex_);
  give_back_whole_segments();
}

void DeviceCache::each_free(const std::function<void(void*, size_t)>& f) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, piece] : pieces_)
    if (!piece.used) f(begin, piece.bytes);
}

void* DeviceCache::allocate(size_t wanted) {
  if (wanted > SIZE_MAX / 2) return nullptr;
  const size_t bytes = std::max(kUnit, round_up(wanted, kUnit));
  const bool small = bytes <= kLargestSmall;
  const std::lock_guard lock(mutex_);
  ++stats_.allocations;
  Pieces::iterator piece = pieces_.end();
  if (const auto fit = free_of(small).lower_bound({bytes, nullptr}); fit != free_of(small).end())
    piece = pieces_.find(fit->second);
  if (piece == pieces_.end()) {
    // A block larger than a segment gets its own, of exactly its size if memory is short.
    const size_t exact = round_up(bytes, kSmallSegment);
    piece = add_segment(small ? kSmallSegment : std::max(exact, kLargeSegment), small);
    if (piece == pieces_.end()) {
      if (!source_.keeps) give_back_whole_segments();
      piece = add_segment(exact, small);
    }
    if (piece == pieces_.end()) return nullptr;
  }
  const auto begin = piece->first;
  Piece& found = piece->second;
  free_of(small).erase({found.bytes, begin});
  if (const size_t rest = found.bytes - bytes; rest > (small ? 0 : kLargestSmall)) {
    found.bytes = bytes;
    pieces_.emplace(begin + bytes, Piece{rest, found.segment, small, false});
    free_of(small).emplace(rest, begin + bytes);
  }
  found.used = true;
  stats_.in_use += static_cast<int64_t>(found.bytes);
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  return begin;
}

void DeviceCache::free(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  auto piece = pieces_.find(static_cast<char*>(block));
  piece->second.used = false;
  stats_.in_use -= static_cast<int64_t>(piece->second.bytes);
  Free& free = free_of(piece->second.small);
  const auto joins = [&](Pieces::iterator left, Pieces::iterator right) {
    return !left->second.used && !right->second.used && left->second.segment == right->second.segment;
  };
  const auto join = [&](Pieces::iterator left, Pieces::iterator right) {
    free.erase({left->second.bytes, left->first});
    free.erase({right->second.bytes, right->first});
    left->second.bytes += right->second.bytes;
    pieces_.erase(right);
  };
  if (const auto next = std::next(piece); next != pieces_.end() && joins(piece, next)) join(piece, next);
  if (piece != pieces_.begin() && joins(std::prev(piece), piece)) {
    const auto before = std::prev(piece);
    join(before, piece);
    piece = before;
  }
  free.emplace(piece->second.bytes, piece->first);
}

AllocatorStats DeviceCache::stats() const {
  const std::lock_guard lock(mutex_);
  AllocatorStats stats = stats_;
  stats.cached = held_ - stats.in_use;
  return stats;
}

void DeviceCache::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_in_use = stats_.in_use;
}

std::string out_of_memory(const std::string& device, size_t asked, const AllocatorStats& ours, size_t free,
                          size_t total) {
  const auto held = static_cast<double>(ours.in_use + ours.cached);
  std::string text = fmt::format(
      "[{}] out of memory: asked for {} while {} are in use (at most {} were) and {} in pieces kept for reuse", device,
      text_of(static_cast<double>(asked)), text_of(static_cast<double>(ours.in_use)),
      text_of(static_cast<double>(ours.peak_in_use)), text_of(static_cast<double>(ours.cached)));
  if (total > 0) {
    text += fmt::format("; of the card's {} {} are free", text_of(static_cast<double>(total)),
                        text_of(static_cast<double>(free)));
    const double others = static_cast<double>(total) - static_cast<double>(free) - held;
    // The driver and the code of the kernels take some hundred MiB.
    if (others > 1024.0 * kMiB) text += fmt::format(", and {} are others' or the driver's", text_of(others));
  }
  return text +
         ". A smaller run.batch_size, more run.virtual_ranks or run.recompute = true need less, and so do fewer "
         "workers that share the card";
}

}  // namespace elinvar
