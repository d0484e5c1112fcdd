#pragma once
// What is kept of a GPU's memory and handed out again, as bookkeeping alone: who takes the memory from the device, and
// gives it back, is an argument, so that the rules below are tested without one.
//
// A block is a piece of a segment, the smallest free one that fits, and joins its free neighbours when it is let go.
// Segments are taken as they are needed: 2 MiB for blocks of up to 1 MiB, at least 32 MiB for larger ones, for which no
// small piece is ever cut, so that a step like the one before asks the device for nothing. Where the device has no
// more, segments without blocks are given back and it is asked again.
//
// One queue of work uses all blocks: one that was let go is handed out at once, because what wrote to it is queued
// before. Thread-safe.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tensor/allocator.h"
#include "tensor/base/failure.h"

namespace elinvar {

class DeviceCache {
 public:
  struct Source {
    std::function<void*(size_t bytes)> take;  // null: there is no more
    std::function<void(void* segment)> give;
    // All that was queued is done, so that segments may be given back.
    std::function<void()> settle = [] {};
    bool keeps = false;  // segments until give_back() is called: graphs go on using pieces that no block lies on
  };

  explicit DeviceCache(Source source) : source_(std::move(source)) {}
  ~DeviceCache() = default;  // with the process, which the driver cleans up after
  DeviceCache(const DeviceCache&) = delete;
  DeviceCache& operator=(const DeviceCache&) = delete;

  static constexpr size_t kUnit = 512;  // of sizes and addresses
  void* allocate(size_t bytes);         // null: the device has no more, even of what was cached
  void free(void* block) noexcept;
  void give_back();                                                               // whole free segments
  void each_free(const std::function<void(void* piece, size_t bytes)>& f) const;  // what no block lies on
  AllocatorStats stats() const;                                                   // system_calls counts segments taken
  void reset_peak();

 private:
  struct Piece {
    size_t bytes;
    char* segment;  // where it begins
    bool small, used;
  };
  using Pieces = std::map<char*, Piece>;
  using Free = std::set<std::pair<size_t, char*>>;

  Free& free_of(bool small) { return small ? free_small_ : free_large_; }
  Pieces::iterator add_segment(size_t bytes, bool small);
  void give_back_whole_segments();

  Source source_;
  mutable std::mutex mutex_;
  Pieces pieces_;  // of all segments, used or free
  Free free_small_, free_large_;
  AllocatorStats stats_;
  int64_t held_ = 0;
};

// The device has no more; what was asked for is not had, and nothing else has changed.
class DeviceFull : public Failure {
 public:
  using Failure::Failure;
};

// What to tell who has asked for more than there is. `free` and `total` are the device's own; 0: unknown.
std::string out_of_memory(const std::string& device, size_t asked, const AllocatorStats& ours, size_t free,
                          size_t total);

}  // namespace elinvar
