#pragma once
// The bookkeeping of a cache for GPU memory. The functions that take memory from the device and give it back are
// arguments, so that the rules below can be tested without a device.
//
// A block is a piece of a segment, cut from the smallest free piece that fits. A freed block merges with its free
// neighbours. Segments are taken on demand: 2 MiB for blocks of up to 1 MiB, at least 32 MiB for larger blocks, and
// small blocks are never cut from large segments, so that a repeated step asks the device for nothing. If the device
// has no more memory, segments without blocks are given back and the request is repeated.
//
// All blocks are used by one queue of work, so a freed block is reused at once: the work that wrote to it was queued
// earlier. Thread-safe.
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
    std::function<void*(size_t bytes)> take;  // returns null if the device has no more
    std::function<void(void* segment)> give;
    // Waits until all queued work is done, so that segments may be given back.
    std::function<void()> settle = [] {};
    bool keeps = false;  // keeps segments until give_back(): graphs use pieces that no block lies on
  };

  explicit DeviceCache(Source source) : source_(std::move(source)) {}
  ~DeviceCache() = default;  // the driver frees the segments when the process ends
  DeviceCache(const DeviceCache&) = delete;
  DeviceCache& operator=(const DeviceCache&) = delete;

  static constexpr size_t kUnit = 512;  // sizes and addresses are multiples of it
  void* allocate(size_t bytes);         // null if the device has no more, even after whole free segments are given back
  void free(void* block) noexcept;
  void give_back();                                                               // gives back whole free segments
  void each_free(const std::function<void(void* piece, size_t bytes)>& f) const;  // calls f for each free piece
  AllocatorStats stats() const;                                                   // system_calls counts segments taken
  void reset_peak();

 private:
  struct Piece {
    size_t bytes;
    char* segment;  // start of its segment
    bool small, used;
  };
  using Pieces = std::map<char*, Piece>;
  using Free = std::set<std::pair<size_t, char*>>;

  Free& free_of(bool small) { return small ? free_small_ : free_large_; }
  Pieces::iterator add_segment(size_t bytes, bool small);
  void give_back_whole_segments();

  Source source_;
  mutable std::mutex mutex_;
  Pieces pieces_;  // of all segments, used and free
  Free free_small_, free_large_;
  AllocatorStats stats_;
  int64_t held_ = 0;
};

// Thrown if the device has no more memory. The failed request has changed nothing.
class DeviceFull : public Failure {
 public:
  using Failure::Failure;
};

// Returns the message for a failed request. `free` and `total` are the device's own figures; 0 if unknown.
std::string out_of_memory(const std::string& device, size_t asked, const AllocatorStats& ours, size_t free,
                          size_t total);

}  // namespace elinvar
