#pragma once
// The product under matmul and convolutions on a GPU, in canonical order (NUMERICS.md, rule 8): C[i, j] sums A[i, k]
// B[k, j] in chains of kChunk, which add up to groups and groups to the result. Tiles of C belong to blocks; a thread
// keeps kPerThread x kPerThread chains in registers, and the block stages kDepth steps of k of A and B in shared
// memory.
//
// A Factors type says where operands come from and results go (all in nominal k):
//   int64_t m, n, k, batch;
//   static constexpr bool kAAlongK, kBAlongK;        // along which axis neighbouring threads read (k, else i or j)
//   float a(int64_t b, int64_t i, int64_t k) const;  // 0 for an absent term; only asked for i < m, k < this->k
//   float b(int64_t b, int64_t k, int64_t j) const;
//   void store(int64_t b, int64_t i, int64_t j, float sum) const;
#include "tensor/cuda/kernel.h"
#include "tensor/numerics.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kTileSide = 64, kDepth = 16, kPerThread = 4, kTileThreads = 256;
static_assert(kTileSide / kPerThread * (kTileSide / kPerThread) == kTileThreads && kChunk % kDepth == 0);

// Sums of chains, groups and the whole, of which the outer ones take part only if k is that long.
template <class Factors>
__global__ void __launch_bounds__(kTileThreads) product_tiles(Factors f) {
  using V = Vec<float>;
  __shared__ float a_tile[kDepth][kTileSide + 4], b_tile[kDepth][kTileSide + 4];
  const int64_t tiles_n = (f.n + kTileSide - 1) / kTileSide, tiles_m = (f.m + kTileSide - 1) / kTileSide;
  const int64_t tile = int64_t{blockIdx.x} % (tiles_m * tiles_n), batch = int64_t{blockIdx.x} / (tiles_m * tiles_n);
  const int64_t i0 = tile / tiles_n * kTileSide, j0 = tile % tiles_n * kTileSide;
  const int t = static_cast<int>(threadIdx.x);
  const int ti = t / (kTileSide / kPerThread) * kPerThread, tj = t % (kTileSide / kPerThread) * kPerThread;

  V chain[kPerThread][kPerThread], group[kPerThread][kPerThread], total[kPerThread][kPerThread];
  for (int p = 0; p < kPerThread; ++p)
    for (int q = 0; q < kPerThread; ++q) chain[p][q] = group[p][q] = total[p][q] = V{0.0f};

  for (int64_t k0 = 0; k0 < f.k; k0 += kDepth) {
    for (int e = t; e < kTileSide * kDepth; e += kTileThreads) {
      const int ak = Factors::kAAlongK ? e % kDepth : e / kTileSide,
                ai = Factors::kAAlongK ? e / kDepth : e % kTileSide;
      const int bk = Factors::kBAlongK ? e % kDepth : e / kTileSide,
                bj = Factors::kBAlongK ? e / kDepth : e % kTileSide;
      a_tile[ak][ai] = i0 + ai < f.m && k0 + ak < f.k ? f.a(batch, i0 + ai, k0 + ak) : 0.0f;
      b_tile[bk][bj] = j0 + bj < f.n && k0 + bk < f.k ? f.b(batch, k0 + bk, j0 + bj) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      V a[kPerThread], b[kPerThread];
#pragma unroll
      for (int p = 0; p < kPerThread; ++p) a[p] = V{a_tile[d][ti + p]}, b[p] = V{b_tile[d][tj + p]};
#pragma unroll
      for (int p = 0; p < kPerThread; ++p)
#pragma unroll
        for (int q = 0; q < kPerThread; ++q) chain[p][q] = fma(a[p], b[q], chain[p][q]);
    }
    __syncthreads();
    const int64_t done = k0 + kDepth;
    if (done % kChunk != 0 && done < f.k) continue;
    for (int p = 0; p < kPerThread; ++p)
      for (int q = 0; q < kPerThread; ++q) {
        group[p][q] = group[p][q] + chain[p][q];
        chain[p][q] = V{0.0f};
      }
    if (done % (kChunk * kGroup) != 0 && done < f.k) continue;
    for (int p = 0; p < kPerThread; ++p)
      for (int q = 0; q < kPerThread; ++q) {
        total[p][q] = total[p][q] + group[p][q];
        group[p][q] = V{0.0f};
      }
  }
  for (int p = 0; p < kPerThread; ++p)
    for (int q = 0; q < kPerThread; ++q)
      if (i0 + ti + p < f.m && j0 + tj + q < f.n) f.store(batch, i0 + ti + p, j0 + tj + q, total[p][q].v);
}

template <class Factors>
void multiply(Gpu& stream, const char* name, const Factors& f) {
  const int64_t tiles = (f.m + kTileSide - 1) / kTileSide * ((f.n + kTileSide - 1) / kTileSide);
  launch(stream, name, {.blocks = f.batch * tiles, .threads = kTileThreads}, product_tiles<Factors>, f);
}

}  // namespace elinvar::HWY_NAMESPACE
