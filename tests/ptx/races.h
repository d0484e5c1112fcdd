#pragma once
// Finds races: two accesses to the same bytes of shared or global memory, at least one of which writes, by threads that
// no barrier orders, unless both are atomic. Threads of different blocks are never ordered, and threads of one block
// only by its barriers, even lanes of one warp. The detector tracks accesses of four bytes and more in units of four
// bytes, and shorter ones by their first byte; it does not see a race between a longer and a shorter access.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "tests/ptx/warp.h"

namespace elinvar::ptx {

enum class Access { read, write, atomic };

class RaceDetector {
 public:
  void begin_launch();
  void begin_block();
  void pass_barrier() { ++epoch_; }

  // Throws Fault if the access races with an earlier one.
  void access(const Warp& warp, int lane, const unsigned char* place, size_t bytes, bool shared, Access kind);

 private:
  // Who accessed a unit last, and in which interval between barriers. Intervals are numbered over all launches, so that
  // nothing has to be cleared.
  struct Last {
    uint64_t epoch = 0;
    uint32_t block = 0, thread = 0;
    bool atomic = false;
  };
  struct Unit {
    Last write, read;
    bool several_readers = false;  // of the last interval, or in several blocks of this launch
    bool several_blocks = false;
  };
  static constexpr size_t kUnits = 1024;
  struct Page {
    Unit units[kUnits];
  };
  struct Pages {
    std::unordered_map<uint64_t, std::unique_ptr<Page>> all;
    uint64_t last = ~uint64_t{0};  // the page found last
    Page* found = nullptr;
    Unit& at(uint64_t unit);
  };

  bool unordered(const Last& before, const Last& now, bool shared) const;
  void access(Unit& unit, const Last& now, bool shared, bool writes) const;

  uint64_t epoch_ = 1, launch_began_ = 1, block_began_ = 1;
  Pages words_, bytes_;
};

}  // namespace elinvar::ptx
