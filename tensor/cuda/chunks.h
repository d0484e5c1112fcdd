#pragma once
// Operands of exact products whose elements are chunks, 16 numbers that are neighbours along k, as warpgroup.h
// multiplies them. A number is q = 128 h + l with h = floor((q + 64) / 128), so that h is in [-64, 64] and l in [-64,
// 63]. The chunk of the bytes h of an operand is in its first plane, and that of l in a second one, at the same place.
//
// Chunks are made of pairs (tensor/quantized.h) by a kernel of their own. Both pairs along k, (lines, 8 chunks), and
// across, (8 chunks, lines), become chunks (chunks, lines): eight lines are 128 bytes, as a warp copies them. If each
// line had its chunks together, the lanes of an access would be in eight cache lines, and copies take twice the time of
// the products.
#include "tensor/cuda/operand.h"
#include "tensor/cuda/pair_tiles.h"
#include "tensor/cuda/warpgroup.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kPairsOfChunk = 8;
constexpr int64_t chunks_for(int64_t pairs) { return (pairs + kPairsOfChunk - 1) / kPairsOfChunk; }
constexpr int kChunkSteps = 4;  // chunks along k of a tile
constexpr uint32_t kTileBytes = kChunkSteps * kNextChunk;

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
  int lines, count, chunks;  // count: pairs along k
  bool in_fours;             // whether chunks are whole, and pairs of a line in 16 aligned bytes
};

// A block makes chunks of some lines by some chunks at a time. Along k four threads read 128 bytes of a line, and a
// warp writes 128 bytes of each of four chunks.
template <bool kAlongK>
struct SplitTile {
  static constexpr int kThreads = 256, kChunks = kAlongK ? 4 : 1, kLines = kThreads / kChunks;
};

// Pairs beyond the last along k are zero.
template <bool kAlongK>
__global__ void split_into_chunks(PairsToSplit s) {
  using Tile = SplitTile<kAlongK>;
  const int thread = static_cast<int>(threadIdx.x), across = (s.chunks + Tile::kChunks - 1) / Tile::kChunks,
            tiles = (s.lines + Tile::kLines - 1) / Tile::kLines * across;
  const int64_t plane = int64_t{s.chunks} * s.lines;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const int first = tile / across, line = first * Tile::kLines + thread / Tile::kChunks,
              chunk = (tile - first * across) * Tile::kChunks + thread % Tile::kChunks;
    if (line >= s.lines || chunk >= s.chunks) continue;
    const int k = chunk * kPairsOfChunk;
    uint32_t pair[kPairsOfChunk];
    if (kAlongK && s.in_fours) {
      const auto* const fours = reinterpret_cast<const uint4*>(s.from + (int64_t{line} * s.count + k));
      const uint4 a = fours[0], b = fours[1];
      pair[0] = a.x, pair[1] = a.y, pair[2] = a.z, pair[3] = a.w;
      pair[4] = b.x, pair[5] = b.y, pair[6] = b.z, pair[7] = b.w;
    } else {
      const int64_t next = kAlongK ? 1 : s.lines;
      const uint32_t* const from = s.from + (kAlongK ? int64_t{line} * s.count + k : k * next + line);
#pragma unroll
      for (int e = 0; e < kPairsOfChunk; ++e) pair[e] = k + e < s.count ? from[e * next] : 0;
    }
    Chunk high, low;
#pragma unroll
    for (int e = 0; e < 4; ++e) split_pairs(pair[2 * e], pair[2 * e + 1], high.words[e], low.words[e]);
    Chunk* const to = s.to + (int64_t{chunk} * s.lines + line);
    to[0] = high;
    to[plane] = low;
  }
}

// The chunks of an operand, in scratch memory.
class Chunks {
 public:
  // Splits pairs (lines, count), or if `along_k` is false pairs (count, lines).
  Chunks(Gpu& stream, const char* name, const void* pairs, bool along_k, int64_t lines, int64_t count)
      : plane_(lines * chunks_for(count)), memory_(stream, 2 * plane_) {
    const PairsToSplit s{.from = static_cast<const uint32_t*>(pairs),
                         .to = memory_.data(),
                         .lines = static_cast<int>(lines),
                         .count = static_cast<int>(count),
                         .chunks = static_cast<int>(chunks_for(count)),
                         .in_fours = count % kPairsOfChunk == 0 && reinterpret_cast<uintptr_t>(pairs) % 16 == 0};
    if (along_k) split<true>(stream, name, s);
    else split<false>(stream, name, s);
  }
  const Chunk* data() const { return memory_.data(); }
  int64_t plane() const { return plane_; }

 private:
  template <bool kAlongK>
  static void split(Gpu& stream, const char* name, const PairsToSplit& s) {
    using Tile = SplitTile<kAlongK>;
    const int64_t tiles =
        int64_t{(s.lines + Tile::kLines - 1) / Tile::kLines} * ((s.chunks + Tile::kChunks - 1) / Tile::kChunks);
    launch(stream, name, {.blocks = blocks_for(tiles * Tile::kThreads), .threads = Tile::kThreads},
           split_into_chunks<kAlongK>, s);
  }

  int64_t plane_;
  DeviceScratch<Chunk> memory_;
};

// A thread's part in copying tiles of kTileLines lines by kChunkSteps chunks, of both planes. A warp copies four chunks
// of eight lines, which are neighbours in memory, and have no bank conflicts. Lines beyond the last repeat the first:
// their sums go nowhere.
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
