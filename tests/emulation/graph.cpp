// A graph keeps the calls of its work. A replay makes them again, after filling with NaN all memory of the graphs that
// no tensor holds: code that relies on values of an earlier replay gets wrong results. A block outside of the graph
// that was passed to a call must still exist at the replay.
#include "tests/emulation/graph.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/device_cache.h"
#include "tests/emulation/side_queue.h"

namespace elinvar {
namespace emulation {
namespace {

std::atomic<int64_t> launch_count = 0;
std::atomic<int> without_memory = 0;

class Blocks {
 public:
  static Blocks& instance() {
    static auto* all = new Blocks;
    return *all;
  }
  void add(const void* begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[address(begin)] = {bytes, ++next_};
  }
  void remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(address(begin));
  }
  uint64_t number_of(uintptr_t at) {  // number of the block that contains this address; 0: none
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return 0;
    --block;
    return at < block->first + block->second.bytes ? block->second.number : 0;
  }
  static uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

 private:
  struct Block {
    size_t bytes;
    uint64_t number;
  };
  std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  uint64_t next_ = 0;
};

struct Call {
  const char* name;
  std::map<uintptr_t, uint64_t> reads;  // addresses in blocks outside of the graph, and the blocks' numbers
  std::function<void()> work;
};

thread_local std::vector<Call>* kept = nullptr;

}  // namespace

int64_t launches() { return launch_count; }
NoMoreMemory::NoMoreMemory() { ++without_memory; }
NoMoreMemory::~NoMoreMemory() { --without_memory; }
void* take_segment(size_t bytes) {
  return without_memory > 0 ? nullptr : std::aligned_alloc(DeviceCache::kUnit, bytes);
}
void add_block(const void* begin, size_t bytes) { Blocks::instance().add(begin, bytes); }
void remove_block(const void* begin) { Blocks::instance().remove(begin); }

void perform(const char* name, const void* arguments, size_t bytes, std::function<void()> work) {
  if (kept == nullptr) {
    ++launch_count;
    if (!put_off(work)) work();
    return;
  }
  Call call{.name = name, .reads = {}, .work = std::move(work)};
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(arguments) + at, sizeof word);
    if (const uint64_t number = Blocks::instance().number_of(word)) call.reads.emplace(word, number);
  }
  kept->push_back(std::move(call));
}

struct MarkedPlace {
  struct Piece {
    const void* begin;
    std::vector<char> were;
  };
  std::vector<Piece> pieces;
};

void check_unchanged(const MarkedPlace& place, const void* begin, size_t bytes) {
  for (const MarkedPlace::Piece& piece : place.pieces)
    if (piece.begin == begin && piece.were.size() == bytes)
      return invariant(bytes == 0 || std::memcmp(begin, piece.were.data(), bytes) == 0,
                       "nothing in a graph writes to what a mark says is complete");
  invariant(false, "a download by a mark is of what the mark says is complete");
}

namespace {

class KeptCalls final : public RecordedWork {
 public:
  KeptCalls(std::vector<Call> calls, const DeviceCache& memory) : calls_(std::move(calls)), memory_(memory) {}

  void launch() override {
    ++launch_count;
    memory_.each_free([](void* piece, size_t bytes) { std::memset(piece, 0xff, bytes); });
    for (const Call& call : calls_) {
      for (const auto& [address, number] : call.reads)
        if (Blocks::instance().number_of(address) != number) {
          fmt::print(stderr, "a graph's call of {} was given memory that is gone\n", call.name);
          invariant(false, "what a graph was given stays where it is");
        }
      call.work();
    }
  }

 private:
  std::vector<Call> calls_;
  const DeviceCache& memory_;
};

}  // namespace
}  // namespace emulation

template <>
EmulatedStream& recording_stream(int index) {
  static auto& stream = *new EmulatedStream(index, true);
  return stream;
}

template <>
std::unique_ptr<RecordedWork> record(EmulatedStream& stream, const std::function<void()>& work) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  EmulatedStream& recording = recording_stream<Emulated>(stream.index());
  std::vector<emulation::Call> calls;
  struct Scope {
    ~Scope() {
      emulation::kept = nullptr;
      recorded_on<Emulated>() = nullptr;
    }
  };
  {
    const Scope scope;
    emulation::kept = &calls;
    recorded_on<Emulated>() = &recording;
    work();
  }
  return std::make_unique<emulation::KeptCalls>(std::move(calls), recording.cache());
}

template <>
Mark mark(EmulatedStream&, std::span<const Tensor> complete) {
  auto place = std::make_shared<emulation::MarkedPlace>();
  for (const Tensor& t : complete)
    place->pieces.push_back({t.raw(), std::vector<char>(static_cast<size_t>(t.bytes()))});
  emulation::kept->push_back({.name = "a mark", .reads = {}, .work = [place] {
                                for (auto& piece : place->pieces)
                                  if (!piece.were.empty())
                                    std::memcpy(piece.were.data(), piece.begin, piece.were.size());
                              }});
  return place;
}

}  // namespace elinvar
