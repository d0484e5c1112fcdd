// The emulated GPU itself: it must run what is right, and must not be kind to what is wrong.
#ifdef ELINVAR_EMULATION
#include <gtest/gtest.h>

#include <vector>

#include "tests/emulation/cuda.h"  // last: its macros are not for other headers

namespace elinvar {
namespace {

// Each thread leaves its number and reads that of the thread opposite.
std::vector<int> opposite(int threads, bool with_barrier) {
  std::vector<int> seen(static_cast<size_t>(3 * threads), -1);
  emulation::run(3, threads, 4 * static_cast<size_t>(threads), [&] {
    int* numbers = static_cast<int*>(emulation::shared_memory());
    numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (with_barrier) __syncthreads();
    seen[blockIdx.x * blockDim.x + threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
  });
  return seen;
}

TEST(Emulation, BarriersMakeWritesSeenAndTheirLackShows) {
  std::vector<int> expected;
  for (int block = 0; block < 3; ++block)
    for (int t = 99; t >= 0; --t) expected.push_back(t);
  EXPECT_EQ(opposite(100, true), expected);
  EXPECT_NE(opposite(100, false), expected);
}

// Fifty times around a ring, each round with a barrier on either side.
TEST(Emulation, ThreadsKeepTheirStateOverManyBarriers) {
  std::vector<int> at(64);
  emulation::run(1, 64, 4 * 64, [&] {
    int* ring = static_cast<int*>(emulation::shared_memory());
    const unsigned t = threadIdx.x;
    int mine = static_cast<int>(t);
    for (int round = 0; round < 50; ++round) {
      ring[t] = mine;
      __syncthreads();
      mine = ring[(t + 1) % 64];
      __syncthreads();
    }
    at[t] = mine;
  });
  for (int t = 0; t < 64; ++t) EXPECT_EQ(at[static_cast<size_t>(t)], (t + 50) % 64);
}

TEST(Emulation, ShufflesFollowCudasRules) {
  std::vector<int> down(64), across(64), first(64);
  emulation::run(1, 64, 0, [&] {
    const auto t = threadIdx.x;
    const int mine = static_cast<int>(t);
    down[t] = __shfl_down_sync(0xffffffffu, mine, 8);
    across[t] = __shfl_xor_sync(0xffffffffu, mine, 5);
    first[t] = __shfl_sync(0xffffffffu, mine, 0);
  });
  for (int t = 0; t < 64; ++t) {
    const auto i = static_cast<size_t>(t);
    EXPECT_EQ(down[i], t % 32 + 8 < 32 ? t + 8 : t);
    EXPECT_EQ(across[i], t ^ 5);
    EXPECT_EQ(first[i], t / 32 * 32);
  }
}

TEST(Emulation, DynamicSharedMemoryIsNaNUntilWritten) {
  emulation::run(2, 1, 8, [] {
    float* x = static_cast<float*>(emulation::shared_memory());
    EXPECT_NE(x[0], x[0]);
    x[0] = 1.0f;
  });
}

TEST(EmulationDeathTest, AWarpThatWaitsInPartIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(emulation::run(1, 32, 0,
                              [] {
                                if (threadIdx.x == 0) __syncwarp();
                                else __syncthreads();
                              }),
               "part of a warp");
}

}  // namespace
}  // namespace elinvar
#endif
