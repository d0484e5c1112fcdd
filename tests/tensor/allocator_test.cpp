#include "tensor/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tensor/base/check.h"

// Sanitizers would end the process when the system's allocator refuses.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace elinvar {
namespace {

TEST(Allocator, BlocksAreAlignedAndHaveSlack) {
  HostAllocator& allocator = HostAllocator::instance();
  for (size_t bytes :
       {0, 1, 63, 64, 65, 127, 128, 129, 1000, 4096, 65536, 100'001, 2 << 20, (2 << 20) + 1, 9'000'000}) {
    const std::shared_ptr<void> block = allocator.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0u) << bytes;
    std::memset(block.get(), 0x5a, bytes + kSlack);  // checked by the address sanitizer
  }
}

TEST(Allocator, WasteIsAtMostAQuarter) {
  HostAllocator& allocator = HostAllocator::instance();
  for (size_t bytes = 192; bytes < 3'000'000; bytes = bytes * 9 / 8 + 1) {
    const int64_t before = allocator.stats().in_use;
    const std::shared_ptr<void> block = allocator.allocate(bytes);
    const auto taken = static_cast<double>(allocator.stats().in_use - before),
               asked = static_cast<double>(bytes + kSlack);
    EXPECT_GE(taken, asked);
    EXPECT_LE(taken, asked * 1.25 + 1) << bytes;
  }
}

TEST(Allocator, AFreedBlockComesBack) {
  HostAllocator& allocator = HostAllocator::instance();
  std::shared_ptr<void> block = allocator.allocate(123'456);
  void* address = block.get();
  const AllocatorStats held = allocator.stats();
  block.reset();
  const AllocatorStats freed = allocator.stats();
  EXPECT_EQ(held.in_use - freed.in_use, freed.cached - held.cached);
  EXPECT_GE(held.in_use - freed.in_use, 123'456);
  block = allocator.allocate(123'400);  // of the same size class
  EXPECT_EQ(block.get(), address);
  EXPECT_EQ(allocator.stats().system_calls, freed.system_calls);
  EXPECT_EQ(allocator.stats().allocations, freed.allocations + 1);
}

TEST(Allocator, PeakAndRelease) {
  HostAllocator& allocator = HostAllocator::instance();
  allocator.reset_peak();
  const int64_t before = allocator.stats().in_use;
  EXPECT_EQ(allocator.stats().peak_in_use, before);
  allocator.allocate(1'000'000);
  EXPECT_GE(allocator.stats().peak_in_use, before + 1'000'000);
  EXPECT_EQ(allocator.stats().in_use, before);
}

TEST(Allocator, ReleasingGivesWholePagesBack) {
  HostAllocator& allocator = HostAllocator::instance();
  const std::shared_ptr<void> below = allocator.allocate(100'000);
  allocator.allocate(64 << 20);
  const int64_t kept = allocator.stats().cached;
  allocator.release_cached();
  const AllocatorStats released = allocator.stats();
  EXPECT_LE(released.cached, kept - (60 << 20));
  const std::shared_ptr<void> block = allocator.allocate(64 << 20);
  std::memset(block.get(), 1, 64 << 20);
  EXPECT_EQ(allocator.stats().system_calls, released.system_calls + 1);
}

// Freed blocks of several sizes serve a larger one.
TEST(Allocator, NeighboursJoin) {
  HostAllocator& allocator = HostAllocator::instance();
  allocator.allocate(80 << 20);
  const AllocatorStats before = allocator.stats();
  {
    std::vector<std::shared_ptr<void>> blocks;
    for (size_t i = 1; i <= 12; ++i) blocks.push_back(allocator.allocate(i << 20));
    for (const size_t i : {3u, 0u, 11u, 5u, 4u, 7u, 9u, 1u, 10u, 2u, 8u, 6u}) blocks[i].reset();
  }
  allocator.allocate(80 << 20);
  for (size_t megabytes = 1; megabytes <= 64; ++megabytes) allocator.allocate(megabytes << 20);
  EXPECT_EQ(allocator.stats().system_calls, before.system_calls);
  EXPECT_EQ(allocator.stats().cached, before.cached);
}

TEST(Allocator, ARequestThatCannotBeServedIsAFailure) {
  HostAllocator& allocator = HostAllocator::instance();
  const int64_t before = allocator.stats().in_use;
  for (size_t bytes : {size_t{1} << 46, size_t{1} << 52, ~size_t{0} - 8, ~size_t{0}}) {
    try {
      allocator.allocate(bytes);
      FAIL() << "nothing was thrown for " << bytes;
    } catch (const Failure& e) {
      EXPECT_NE(std::string(e.what()).find("out of memory"), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(allocator.stats().in_use, before);
}

TEST(Allocator, BlocksOfSeveralThreadsNeverOverlap) {
  const int64_t before = HostAllocator::instance().stats().in_use;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        std::minstd_rand random(t + 1);
        std::vector<std::pair<std::shared_ptr<void>, size_t>> held;
        for (int i = 0; i < 2000; ++i) {
          const size_t bytes = 1 + random() % 3000;
          held.emplace_back(HostAllocator::instance().allocate(bytes), bytes);
          std::memset(held.back().first.get(), static_cast<int>(t), bytes);
          if (held.size() < 20) continue;
          const size_t victim = random() % held.size();
          const auto* bytes_held = static_cast<const unsigned char*>(held[victim].first.get());
          for (size_t j = 0; j < held[victim].second; ++j) ASSERT_EQ(bytes_held[j], t);
          held.erase(held.begin() + static_cast<ptrdiff_t>(victim));
        }
      });
  }
  EXPECT_EQ(HostAllocator::instance().stats().in_use, before);
}

}  // namespace
}  // namespace elinvar
