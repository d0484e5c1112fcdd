#pragma once
// A product of two tiles by a block. Each thread keeps 8 x 8 chains in registers (NUMERICS.md, rule 8) and reads kDepth
// steps at a time from shared memory. While these are multiplied, the terms of the next steps are loaded to registers.
//
// A and B are sides of a product:
//   void load(int by, int steps);   // starts to load those that begin `by` after the last ones; `steps` of them exist
//   void store(int at);             // stores them to buffer 0 or 1
//   const float* row(int at, int k, int d) const;   // step k + d, of buffer `at`, by lines
#include "tensor/cuda/operand.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {

template <int kColumns>
using ChainsOf = Vec<float>[8][kColumns];
using Chains = ChainsOf<8>;

template <int kColumns>
__device__ void clear(ChainsOf<kColumns>& x) {
#pragma unroll
  for (int p = 0; p < 8; ++p)
#pragma unroll
    for (int q = 0; q < kColumns; ++q) x[p][q] = Vec<float>{0.0f};
}

// Sums of finished chunks and groups, one for each chain. They are used only once in kChunk steps, so they are kept in
// a thread's local memory; registers are for what each step uses. The compiler, which sees only loops, would choose
// registers, and spill what each step uses.
template <int kColumns>
class alignas(16) ChunkSumsOf {
 public:
  // Sums that are not `used` are not zero.
  __device__ explicit ChunkSumsOf(bool used = true) {
#ifdef __CUDACC__
    asm volatile("" : "+l"(at_));  // hides the address, so that the compiler cannot use registers
#endif
    if (!used) return;
    float4* const at = at_;
#pragma unroll
    for (int i = 0; i < kFours; ++i) at[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  ChunkSumsOf(const ChunkSumsOf&) = delete;
  ChunkSumsOf& operator=(const ChunkSumsOf&) = delete;

  // Adds the chains, and clears them. at_ is read again for each four: with it in a register ptxas spills.
  __device__ void take(ChainsOf<kColumns>& x) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      Vec<float>* four = &x[i / kFoursOfRow][i % kFoursOfRow * 4];
      add(i, make_float4(four[0].v, four[1].v, four[2].v, four[3].v));
#pragma unroll
      for (int e = 0; e < 4; ++e) four[e] = Vec<float>{0.0f};
    }
  }
  // Adds other sums, and clears them.
  __device__ void take(ChunkSumsOf& x) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      add(i, x.at_[i]);
      x.at_[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  // Puts chains away, and returns them: a second sum does not take registers while another one is computed.
  __device__ void put(const ChainsOf<kColumns>& x) {
    float4* const at = at_;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const Vec<float>* four = &x[i / kFoursOfRow][i % kFoursOfRow * 4];
      at[i] = make_float4(four[0].v, four[1].v, four[2].v, four[3].v);
    }
  }
  __device__ void get(ChainsOf<kColumns>& x) const {
    const float4* const at = at_;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const float4 four = at[i];
      Vec<float>* to = &x[i / kFoursOfRow][i % kFoursOfRow * 4];
      to[0].v = four.x, to[1].v = four.y, to[2].v = four.z, to[3].v = four.w;
    }
  }
  __device__ float4 four(int p, int half) const { return at_[kFoursOfRow * p + half]; }

 private:
  static constexpr int kFoursOfRow = kColumns / 4, kFours = 8 * kFoursOfRow;

  __device__ void add(int i, float4 x) {
    using V = Vec<float>;
    const float4 sum = at_[i];
    at_[i] = make_float4((V{sum.x} + V{x.x}).v, (V{sum.y} + V{x.y}).v, (V{sum.z} + V{x.z}).v, (V{sum.w} + V{x.w}).v);
  }

  float4 sums_[kFours];
  float4* at_ = sums_;
};
using ChunkSums = ChunkSumsOf<8>;

// The 8 rows and columns of a thread in a tile: four in either half, so that the 4 x 8 threads of a warp read adjacent
// terms of a step. With kMixedLanes, a lane reads the same 16 bytes of a row as the lane one from it, and of a column
// as the lane two from it, so that shared memory can serve half a warp at once; without, the 8 lanes of a row are
// adjacent.
template <int kRows, int kCols, bool kMixedLanes = false>
struct ThreadTile {
  int i, j;
  __device__ ThreadTile() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int down = kMixedLanes ? lane / 2 % 2 + lane / 8 % 2 * 2 : lane / 8;
    const int across = kMixedLanes ? lane % 2 + lane / 4 % 2 * 2 + lane / 16 * 4 : lane % 8;
    i = (warp / (kCols / 64) * 4 + down) * 4;
    j = (warp % (kCols / 64) * 8 + across) * 4;
  }
  __device__ int row(int p) const { return i + p / 4 * (kRows / 2) + p % 4; }
  __device__ int col(int q) const { return j + q / 4 * (kCols / 2) + q % 4; }
};

// A side whose terms come from memory.
template <class Loader>
struct Streamed {
  using Tile = typename Loader::Tile;
  Loader loader;
  Tile* tiles;  // two
  __device__ void load(int by, int steps) { loader.load(by, steps); }
  __device__ void store(int at) { loader.store(tiles[at]); }
  __device__ const float* row(int at, int, int d) const { return tiles[at].at[d]; }
};

struct SkipNothing {
  __device__ int next(int k) const { return k; }
};

// Runs the steps of [k, k_end) that are not skipped, and calls after(k, next) when those of k are done. All threads of
// a block call it. It sees their earlier writes to shared memory; after it and a barrier, shared memory may be
// overwritten.
template <int kRows, int kCols, class A, class B, class Skip, class After, class Mine = ThreadTile<kRows, kCols>>
__device__ void multiply_steps(A& a, B& b, int k, int k_end, const Skip& skip, Chains& chain, After after,
                               const Mine mine = Mine()) {
  using V = Vec<float>;
  const int first = skip.next(k);
  a.load(first - k, k_end - first);
  b.load(first - k, k_end - first);
  a.store(0);
  b.store(0);
  k = first;
  for (int at = 0; k < k_end; at ^= 1) {
    const int next = skip.next(k + kDepth);
    a.load(next - k, k_end - next);
    b.load(next - k, k_end - next);
    __syncthreads();  // `at` is complete, the other buffer is no longer read, and no compiler delays the loads
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const float *of_a = a.row(at, k, d) + mine.i, *of_b = b.row(at, k, d) + mine.j;
      float4 x[2], y[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        y[h] = *reinterpret_cast<const float4*>(of_b + h * (kCols / 2));
        x[h] = *reinterpret_cast<const float4*>(of_a + h * (kRows / 2));
      }
      const V row[8] = {{x[0].x}, {x[0].y}, {x[0].z}, {x[0].w}, {x[1].x}, {x[1].y}, {x[1].z}, {x[1].w}};
      const V col[8] = {{y[0].x}, {y[0].y}, {y[0].z}, {y[0].w}, {y[1].x}, {y[1].y}, {y[1].z}, {y[1].w}};
      // Along one row and back the next: each multiply-add has a factor of the one before, which the operand cache has.
      // Two banks of registers are read once per clock, so one that reads all three operands takes longer.
#pragma unroll
      for (int p = 0; p < 8; ++p)
#pragma unroll
        for (int r = 0; r < 8; ++r) {
          const int q = p % 2 ? r : 7 - r;
          chain[p][q] = fma(row[p], col[q], chain[p][q]);
        }
    }
    a.store(at ^ 1);
    b.store(at ^ 1);
    after(k, next);
    k = next;
  }
}

// Stores four neighbours, of which `count` exist. `aligned` states that they begin at a multiple of 16 bytes.
__device__ inline void store_four(float* to, const float (&x)[4], int count, bool aligned) {
  if (aligned && count >= 4) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (e < count) to[e] = x[e];
}

}  // namespace elinvar::HWY_NAMESPACE
