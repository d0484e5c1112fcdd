#pragma once
// Operands of exact products whose elements are chunks, 16 numbers that are neighbours along k, as warpgroup.h
// multiplies them. A number is q = 128 h + l with h = floor((q + 64) / 128), so that h is in [-64, 64] and l in [-64,
// 63]. The chunk of the bytes h of an operand is in its first plane, and that of l in a second one, at the same place.
//
// Chunks are made of pairs (tensor/quantized.h) by a kernel of their own. Pairs of channels, (.., C / 2), become (.., C
// / 16), eight neighbours one chunk; pairs of rows, (R / 2, ..), become (R / 16, ..).
#include "tensor/cuda/operand.h"
#include "tensor/cuda/pair_tiles.h"
#include "tensor/cuda/warpgroup.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kPairsOfChunk = 8;
constexpr int kChunkSteps = 4;  // chunks along k of a tile
constexpr uint32_t kTileBytes = kChunkSteps * kNextChunk;

struct alignas(16) Chunk {
  uint32_t words[4];
};

// The bytes h and l of four numbers, from two pairs.
__device__ inline void split_pairs(uint32_t a, uint32_t b, uint32_t& high, uint32_t& low) {
  const auto increased = [](uint32_t q) { return ((q & 0x7fff7fffu) + 0x00400040u) ^ (q & 0x80008000u); };  // by 64
  a = increased(a), b = increased(b);
  high = bytes_of<false>(a >> 7, b >> 7);
  low = (bytes_of<false>(a, b) & 0x7f7f7f7fu) ^ 0x40404040u;  // of 7 bits, with a sign
  low |= (low & 0x40404040u) << 1;
}

struct PairsToSplit {
  const uint32_t* from;
  Chunk* to;
  int64_t plane;  // chunks of a plane
  int lines;
};

// Makes chunks (lines, chunks) of pairs (lines, 8 chunks), or chunks (chunks, lines) of pairs (8 chunks, lines).
template <bool kAlongK>
__global__ void split_into_chunks(PairsToSplit s) {
  for (int64_t at = thread_of_grid(); at < s.plane; at += grid_stride()) {
    uint32_t pair[kPairsOfChunk];
    if constexpr (kAlongK) {
      const auto* const fours = reinterpret_cast<const uint4*>(s.from + at * kPairsOfChunk);
      const uint4 a = fours[0], b = fours[1];
      pair[0] = a.x, pair[1] = a.y, pair[2] = a.z, pair[3] = a.w;
      pair[4] = b.x, pair[5] = b.y, pair[6] = b.z, pair[7] = b.w;
    } else {
      const int64_t chunk = at / s.lines, line = at - chunk * s.lines;
#pragma unroll
      for (int e = 0; e < kPairsOfChunk; ++e) pair[e] = s.from[(chunk * kPairsOfChunk + e) * s.lines + line];
    }
    Chunk high, low;
#pragma unroll
    for (int e = 0; e < 4; ++e) split_pairs(pair[2 * e], pair[2 * e + 1], high.words[e], low.words[e]);
    s.to[at] = high;
    s.to[s.plane + at] = low;
  }
}

// The chunks of an operand, in scratch memory.
class Chunks {
 public:
  // Of pairs (lines, count), in fours, or of pairs (count, lines). `count` is a multiple of kPairsOfChunk.
  Chunks(Gpu& stream, const char* name, const void* pairs, bool along_k, int64_t lines, int64_t count)
      : plane_(lines * (count / kPairsOfChunk)), memory_(stream, 2 * plane_) {
    const PairsToSplit s{static_cast<const uint32_t*>(pairs), memory_.data(), plane_, static_cast<int>(lines)};
    launch(stream, name, {.blocks = blocks_for(plane_)}, along_k ? split_into_chunks<true> : split_into_chunks<false>,
           s);
  }
  const Chunk* data() const { return memory_.data(); }
  int64_t plane() const { return plane_; }

 private:
  int64_t plane_;
  DeviceScratch<Chunk> memory_;
};

// A thread's part in copying tiles of kTileLines lines by kChunkSteps chunks, of both planes. A warp copies four chunks
// of eight lines, which are neighbours in memory in one direction or the other, and have no bank conflicts. Lines
// beyond the last repeat the first: their sums go nowhere.
template <class Operand, int kThreads>
class ChunkCopier {
 public:
  __device__ ChunkCopier(const Operand& operand, int64_t plane, int batch, int first, int lines, int k)
      : operand_(operand), plane_(plane), place_(operand.place(batch, k + step())) {
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      const int line = first + line_of(l);
      line_[l] = operand.line(batch, line < lines ? line : first, k + step());
    }
  }

  // Begins to copy the tile that starts `by` steps after the last one, at first after k, to byte `to` of
  // dynamic_shared(), and its second plane behind it. Steps from `steps` on do not exist and become zero.
  __device__ void copy(uint32_t to, int by, int steps) {
    operand_.advance(line_, place_, by);
    to += step() * kNextChunk + line_of(0) * kChunkBytes;
#pragma unroll
    for (int l = 0; l < kLines; ++l, to += kThreads / kChunkSteps * kChunkBytes) {
      const bool there = step() < steps && operand_.has(line_[l], place_);
      const Chunk* const from = there ? operand_.at(line_[l], place_) : nullptr;
      copy_async(to, from, there);
      copy_async(to + kTileBytes, there ? from + plane_ : nullptr, there);
    }
  }

 private:
  static constexpr int kLines = kTileLines * kChunkSteps / kThreads;  // of a thread
  static_assert(kChunkSteps == 4, "of a warp: eight lines");

  __device__ static int step() { return static_cast<int>(threadIdx.x) % 32 / 8; }
  __device__ static int line_of(int l) {
    return static_cast<int>(threadIdx.x) / 32 * 8 + static_cast<int>(threadIdx.x) % 8 + l * (kThreads / kChunkSteps);
  }

  const Operand& operand_;
  const int64_t plane_;
  typename Operand::Place place_;
  typename Operand::Line line_[kLines];
};

}  // namespace elinvar::HWY_NAMESPACE
