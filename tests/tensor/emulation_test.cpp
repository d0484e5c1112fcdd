// The emulated GPU itself: it must run correct kernels and must expose incorrect ones.
#ifdef ELINVAR_EMULATION
#include <gtest/gtest.h>

#include <vector>

#include "tests/emulation/cuda.h"  // last: its macros are not for other headers

namespace elinvar {
namespace {

// Each thread writes its number and reads that of the opposite thread.
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

// Fifty rounds in a ring, with a barrier before and after each.
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

// Rows of 64 bytes: matrix j is rows 8 j to 8 j + 7 of the first chunk.
TEST(Emulation, MatricesAreDistributedOverTheWarp) {
  for (const bool transposed : {false, true}) {
    std::vector<uint32_t> got(128);
    const emulation::MatrixLoads before = emulation::matrix_loads();
    emulation::run(1, 32, 32 * 64, [&] {
      auto* rows = static_cast<uint16_t*>(emulation::shared_memory());
      const unsigned t = threadIdx.x;
      for (unsigned i = 0; i < 8; ++i) rows[t * 32 + i] = static_cast<uint16_t>(t * 8 + i);
      __syncwarp();
      uint32_t pair[4];
      emulation::load_matrices(t * 64, transposed, pair);
      for (unsigned j = 0; j < 4; ++j) got[t * 4 + j] = pair[j];
    });
    for (uint32_t t = 0; t < 32; ++t)
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t row = transposed ? 2 * (t % 4) : t / 4, column = transposed ? t / 4 : 2 * (t % 4);
        const uint32_t first = (8 * j + row) * 8 + column, second = transposed ? first + 8 : first + 1;
        EXPECT_EQ(got[t * 4 + j], first | second << 16);
      }
    const emulation::MatrixLoads after = emulation::matrix_loads();
    EXPECT_EQ(after.accesses - before.accesses, 4);
    EXPECT_EQ(after.conflicts - before.conflicts, 4 * 3) << "four of eight rows begin at the same bank";
  }
}

// Each thread copies 16 bytes and reads those of the next thread.
TEST(Emulation, CopiesArriveWhenTheyAreWaitedForByAll) {
  const std::vector<float> from(4 * 64, 2.0f);
  for (const int steps : {0, 1, 2}) {
    std::vector<float> got(128);
    emulation::run(1, 64, 64 * 16, [&] {
      const unsigned t = threadIdx.x, next = (t + 1) % 64;
      const float* shared = static_cast<const float*>(emulation::shared_memory());
      emulation::copy_later(t * 16, from.data() + 4 * t, 16, t % 2 == 0);
      if (steps > 0) emulation::wait_for_copies();
      if (steps > 1) __syncthreads();
      got[t] = shared[4 * t];
      got[64 + t] = shared[4 * next];
      emulation::wait_for_copies();
    });
    int missing = 0;
    for (size_t i = 0; i < 128; ++i) {
      const size_t t = i < 64 ? i : (i + 1) % 64;
      if (got[i] != got[i]) ++missing;
      else EXPECT_EQ(got[i], t % 2 == 0 ? 2.0f : 0.0f);
    }
    // the last thread reads the bytes that the first waited for
    EXPECT_EQ(missing, steps == 0 ? 127 : steps == 1 ? 63 : 0);
  }
}

TEST(Emulation, AGroupOfCopiesArrivesWhenItIsWaitedFor) {
  const std::vector<float> from(4, 2.0f);
  for (const int running : {1, 2}) {
    float got = 0.0f;
    emulation::run(1, 1, 16, [&] {
      emulation::copy_later(0, from.data(), 16, true);
      emulation::end_copies();
      emulation::end_copies();
      emulation::wait_for_copies(running);
      got = *static_cast<const float*>(emulation::shared_memory());
      emulation::wait_for_copies();
    });
    EXPECT_EQ(got == 2.0f, running == 1);
  }
}

TEST(EmulationDeathTest, AKernelThatDoesNotWaitForItsCopiesIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const float from[4] = {};
  EXPECT_DEATH(emulation::run(1, 1, 16, [&] { emulation::copy_later(0, from, 16, true); }), "before what it copies");
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
