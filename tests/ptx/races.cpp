#include "tests/ptx/races.h"

#include <string>

#include "tests/ptx/failure.h"

namespace elinvar::ptx {

void RaceDetector::begin_launch() { launch_began_ = ++epoch_; }
void RaceDetector::begin_block() { block_began_ = ++epoch_; }

// Memory of blocks that ran before has been given to this one, so of shared memory only accesses since count.
bool RaceDetector::unordered(const Last& before, const Last& now, bool shared) const {
  if (before.atomic && now.atomic) return false;
  if (before.epoch < (shared ? block_began_ : launch_began_)) return false;
  if (before.block != now.block) return true;
  return before.epoch == now.epoch && before.thread != now.thread;
}

void RaceDetector::access(Unit& unit, const Last& now, bool shared, bool writes) const {
  const auto fail = [&](const char* what, const Last& other) {
    throw Fault(std::string("race: ") + what + " thread " + std::to_string(other.thread) + " of block " +
                std::to_string(other.block) + " and by thread " + std::to_string(now.thread) + " of block " +
                std::to_string(now.block) + ", which no barrier orders");
  };
  if (unordered(unit.write, now, shared))
    fail(writes ? "bytes written both by" : "bytes read that are written by", unit.write);
  if (!writes) {
    const bool fresh = unit.read.epoch < (shared ? block_began_ : launch_began_);
    if (fresh) unit.several_blocks = unit.several_readers = false;
    else if (unit.read.block != now.block) unit.several_blocks = true;
    if (unit.read.epoch != now.epoch) unit.several_readers = false;
    else if (unit.read.thread != now.thread) unit.several_readers = true;
    unit.read = now;
    return;
  }
  const bool read_in_launch = unit.read.epoch >= (shared ? block_began_ : launch_began_);
  if (unordered(unit.read, now, shared) ||
      (read_in_launch && (unit.several_blocks || (unit.several_readers && unit.read.epoch == now.epoch))))
    fail("bytes read by others and by", unit.read);
  unit.write = now;
}

RaceDetector::Unit& RaceDetector::Pages::at(uint64_t unit) {
  if (const uint64_t page = unit / kUnits; page != last) {
    std::unique_ptr<Page>& kept = all[page];
    if (!kept) kept = std::make_unique<Page>();
    last = page;
    found = kept.get();
  }
  return found->units[unit % kUnits];
}

void RaceDetector::access(const Warp& warp, int lane, const unsigned char* place, size_t bytes, bool shared,
                          Access kind) {
  const Last now{epoch_, warp.block->index, warp.first_thread + static_cast<uint32_t>(lane), kind == Access::atomic};
  const bool writes = kind != Access::read;
  const uint64_t address = reinterpret_cast<uint64_t>(place);
  if (bytes < 4) return access(bytes_.at(address), now, shared, writes);
  for (uint64_t at = address; at < address + bytes; at += 4) access(words_.at(at / 4), now, shared, writes);
}

}  // namespace elinvar::ptx
