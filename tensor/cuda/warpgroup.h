#pragma once
// The product of a warpgroup, four warps, on tensor cores: D (64, 128) += A (64, 32) B (32, 128), integers of 8 bits
// with a sign, int32 sums (PTX ISA, "wgmma.mma_async.m64n128k32"). Only compute capability 9.0 has it, and only code
// for the target sm_90a, so that kernels with it have no body elsewhere (ELINVAR_WARPGROUPS).
//
// Factors are read from shared memory, where 16 neighbours along k are a chunk, and a tile of kTileLines lines holds
// all lines of a chunk side by side. Lane 4 g + t of warp w holds row 16 w + g and row 16 w + g + 8 of D, columns 8 n +
// 2 t and 8 n + 2 t + 1, for n from 0 to 15.
//
// Products begin in order and run on their own. Between begin_products() and await_products() their sums may not be
// touched, and the tiles not be written. Under emulation they are computed at once.
#include "tensor/cuda/shared_rows.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
#define ELINVAR_WARPGROUPS 1
#endif

namespace elinvar::HWY_NAMESPACE {

constexpr int kTileLines = 128;
constexpr int kChunkBytes = 16;                            // of a line
constexpr uint32_t kNextChunk = kTileLines * kChunkBytes;  // bytes from a chunk to the next along k
constexpr int kChunksOfProduct = 2, kWarpgroupThreads = 128, kWarpgroupRows = 64;

struct WarpgroupSums {
  int32_t at[64];  // row r of two, column n, e: at[4 n + 2 r + e]
};

#ifdef ELINVAR_WARPGROUPS

#ifdef __CUDACC__
#define ELINVAR_EIGHT_SUMS(d, i)                                                                                \
  "+r"(d.at[i]), "+r"(d.at[i + 1]), "+r"(d.at[i + 2]), "+r"(d.at[i + 3]), "+r"(d.at[i + 4]), "+r"(d.at[i + 5]), \
      "+r"(d.at[i + 6]), "+r"(d.at[i + 7])
#define ELINVAR_ALL_SUMS(d)                                                                                 \
  ELINVAR_EIGHT_SUMS(d, 0), ELINVAR_EIGHT_SUMS(d, 8), ELINVAR_EIGHT_SUMS(d, 16), ELINVAR_EIGHT_SUMS(d, 24), \
      ELINVAR_EIGHT_SUMS(d, 32), ELINVAR_EIGHT_SUMS(d, 40), ELINVAR_EIGHT_SUMS(d, 48), ELINVAR_EIGHT_SUMS(d, 56)

// The descriptor of the lines from byte `at` on: eight lines of a chunk are 128 bytes, the next eight follow them.
__device__ inline uint64_t lines_in_chunks(uint32_t at) {
  constexpr uint64_t kLinesOfChunk = 8 * kChunkBytes;
  return shared_address(at) >> 4 | uint64_t{kNextChunk / 16} << 16 | kLinesOfChunk / 16 << 32;
}
#endif

// Makes what this thread has waited for visible to products.
__device__ inline void show_to_products() {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ inline void begin_products() {
#ifdef __CUDACC__
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Begins the product of the lines at bytes a and b of dynamic_shared().
__device__ inline void begin_product(WarpgroupSums& d, uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1;"
      : ELINVAR_ALL_SUMS(d)
      : "l"(lines_in_chunks(a)), "l"(lines_in_chunks(b)));
#else
  const auto* const shared = dynamic_shared<int8_t>();
  const uint32_t row = threadIdx.x % kWarpgroupThreads / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  const auto line = [&](uint32_t of, uint32_t i) { return shared + of + i * kChunkBytes; };
  for (uint32_t n = 0; n < 16; ++n)
    for (uint32_t r = 0; r < 2; ++r)
      for (uint32_t e = 0; e < 2; ++e) {
        const int8_t *x = line(a, row + 8 * r), *y = line(b, 8 * n + column + e);
        int32_t sum = 0;
        for (uint32_t c = 0; c < kChunksOfProduct; ++c, x += kNextChunk, y += kNextChunk)
          for (int k = 0; k < kChunkBytes; ++k) sum += x[k] * y[k];
        d.at[4 * n + 2 * r + e] += sum;
      }
#endif
}

// Ends a group of products.
__device__ inline void end_products() {
#ifdef __CUDACC__
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits for all groups but the last kRunning.
template <int kRunning>
__device__ void await_products() {
#ifdef __CUDACC__
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kRunning) : "memory");
#endif
}

// Keeps the compiler from reading the sums before they are there.
__device__ inline void take_sums(WarpgroupSums& d) {
#ifdef __CUDACC__
  asm volatile("" : ELINVAR_ALL_SUMS(d)::"memory");
#else
  static_cast<void>(d);
#endif
}

#endif  // ELINVAR_WARPGROUPS

}  // namespace elinvar::HWY_NAMESPACE
