// The cache of a GPU's memory, with a device that only counts.
#include "tensor/device_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace elinvar {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A device that returns addresses with a chosen distance; none of them is read.
struct Counted {
  size_t most = SIZE_MAX, taken = 0;
  int settled = 0;
  uintptr_t next = uintptr_t{1} << 40;
  std::map<void*, size_t> segments;

  DeviceCache::Source source() {
    return {.take = [this](size_t bytes) -> void* {
              if (taken + bytes > most) return nullptr;
              void* at = reinterpret_cast<void*>(next);
              next += bytes;  // the next segment may touch this one, and remains separate
              taken += bytes;
              segments[at] = bytes;
              return at;
            },
            .give =
                [this](void* at) {
                  taken -= segments.at(at);
                  segments.erase(at);
                },
            .settle = [this] { ++settled; }};
  }
};

TEST(DeviceCache, AStepLikeTheOneBeforeAsksTheDeviceForNothing) {
  Counted device;
  DeviceCache cache(device.source());
  const auto step = [&] {
    std::vector<void*> blocks;
    for (const size_t bytes : {size_t{4}, 700 * 1024ul, 3 * kMiB, 100 * kMiB, 5 * kMiB + 1, size_t{0}})
      blocks.push_back(cache.allocate(bytes));
    for (void* block : blocks) cache.free(block);
  };
  step();
  const AllocatorStats first = cache.stats();
  EXPECT_EQ(first.in_use, 0);
  EXPECT_EQ(first.cached, static_cast<int64_t>(device.taken));
  EXPECT_GE(first.peak_in_use, static_cast<int64_t>(108 * kMiB));
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(cache.stats().system_calls, first.system_calls);
  EXPECT_EQ(cache.stats().allocations, 4 * first.allocations);
  EXPECT_EQ(cache.stats().peak_in_use, first.peak_in_use);
}

TEST(DeviceCache, FreePiecesJoin) {
  Counted device;
  DeviceCache cache(device.source());
  void* a = cache.allocate(20 * kMiB);
  void* b = cache.allocate(10 * kMiB);
  EXPECT_EQ(device.segments.size(), 1u) << "two pieces of one segment";
  cache.free(b);
  cache.free(a);
  EXPECT_EQ(cache.allocate(32 * kMiB), a);
  EXPECT_EQ(cache.stats().system_calls, 1);
}

TEST(DeviceCache, SmallBlocksDoNotCutLargePieces) {
  Counted device;
  DeviceCache cache(device.source());
  void* large = cache.allocate(32 * kMiB);
  cache.free(large);
  void* small = cache.allocate(100);
  EXPECT_EQ(cache.allocate(32 * kMiB), large);
  EXPECT_NE(small, large);
  // The next segment begins where this one ends; they stay separate.
  EXPECT_EQ(device.segments.size(), 2u);
  cache.free(small);
  cache.free(large);
  EXPECT_EQ(cache.stats().cached, static_cast<int64_t>(34 * kMiB));
}

TEST(DeviceCache, WhereThereIsNoMoreWhatIsCachedIsGivenBackFirst) {
  Counted device;
  device.most = 100 * kMiB;
  DeviceCache cache(device.source());
  void* kept = cache.allocate(40 * kMiB);
  cache.free(cache.allocate(50 * kMiB));
  EXPECT_EQ(device.taken, 90 * kMiB);
  void* more = cache.allocate(55 * kMiB);
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(device.settled, 1) << "the device is done with what it is given back";
  EXPECT_EQ(device.segments.size(), 2u);
  EXPECT_TRUE(device.segments.contains(kept));
  EXPECT_EQ(cache.allocate(10 * kMiB), nullptr);
  EXPECT_EQ(cache.allocate(SIZE_MAX), nullptr);
  // When memory is nearly exhausted, a segment is no larger than necessary.
  EXPECT_NE(cache.allocate(4 * kMiB), nullptr);
  EXPECT_EQ(device.taken, 100 * kMiB);
  cache.free(more);
  EXPECT_EQ(cache.stats().in_use, static_cast<int64_t>(44 * kMiB));
  cache.reset_peak();
  EXPECT_EQ(cache.stats().peak_in_use, static_cast<int64_t>(44 * kMiB));
}

TEST(DeviceCache, BlocksNeverOverlap) {
  Counted device;
  device.most = 300 * kMiB;
  DeviceCache cache(device.source());
  std::mt19937 random(3);
  std::map<char*, size_t> live;
  size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      const auto victim = std::next(live.begin(), static_cast<int64_t>(random() % live.size()));
      cache.free(victim->first);
      live.erase(victim);
      continue;
    }
    const size_t bytes = random() % (random() % 3 == 0 ? 30 * kMiB : 600 * 1024);
    char* block = static_cast<char*>(cache.allocate(bytes));
    if (block == nullptr) {
      ++refused;
      continue;
    }
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % DeviceCache::kUnit, 0u);
    const auto [at, fresh] = live.emplace(block, bytes);
    ASSERT_TRUE(fresh);
    ASSERT_TRUE(std::next(at) == live.end() || block + bytes <= std::next(at)->first);
    ASSERT_TRUE(at == live.begin() || std::prev(at)->first + std::prev(at)->second <= block);
    ASSERT_LE(cache.stats().in_use + cache.stats().cached, static_cast<int64_t>(device.taken));
  }
  for (const auto& [block, bytes] : live) cache.free(block);
  EXPECT_EQ(cache.stats().in_use, 0);
  EXPECT_EQ(cache.stats().cached, static_cast<int64_t>(device.taken));
  EXPECT_GT(refused, 0u);
  // All pieces have joined: all of the device's memory can be allocated as one block.
  EXPECT_NE(cache.allocate(300 * kMiB), nullptr);
}

TEST(DeviceCache, OutOfMemorySaysWhatIsHeldAndWhatToDo) {
  const AllocatorStats ours{.in_use = 70ll << 30, .peak_in_use = 75ll << 30, .cached = 3ll << 29};
  EXPECT_EQ(
      out_of_memory("cuda:1", 5ull << 29, ours, 1ull << 28, 80ull << 30),
      "[cuda:1] out of memory: asked for 2.5 GiB while 70.0 GiB are in use (at most 75.0 GiB were) and 1.5 GiB in "
      "pieces kept for reuse; of the card's 80.0 GiB 256 MiB are free, and 8.2 GiB are others' or the driver's. A "
      "smaller run.batch_size, more run.virtual_ranks or run.recompute = true need less, and so do fewer workers "
      "that share the card");
  EXPECT_EQ(out_of_memory("cuda:0", 512, {}, 0, 0).find("of the card"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
