#pragma once
// Operands of exact products on a GPU (tensor/quantized.h): how a block of threads brings a tile of pairs to shared
// memory, by asynchronous copies, and how a warp reads it as factors of 8 bits. A number is q = 256 h + l (NUMERICS.md,
// "Exact numerics"), where h is its upper byte, with a sign, and l its lower byte, without one.
#include "tensor/cuda/operand.h"
#include "tensor/cuda/shared_rows.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kPairSteps = 16;  // pairs along k of a tile

// Two words of h and two of l, from four pairs that are neighbours along k.
struct BytesOfFour {
  uint32_t high[2], low[2];
};

// Bytes 1 and 3, or 0 and 2, of two words.
template <bool kUpper>
__device__ uint32_t bytes_of(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  return __byte_perm(a, b, kUpper ? 0x7531 : 0x6420);
#else
  if (kUpper) a >>= 8, b >>= 8;
  return (a & 0xff) | (a >> 8 & 0xff00) | (b & 0xff) << 16 | (b << 8 & 0xff000000);
#endif
}

// The place of a tile of kSide lines in shared memory, as the index of a word. Neighbours in memory stay neighbours, so
// that 16 bytes are copied at once. Lane 4 g + t reads four t of line g of eight. These accesses have no bank
// conflicts:
//   along k:   fours of a line are adjacent, four u of line l in the place of four (u ^ l / 2 % 4)
//   along i:   lines of a k are adjacent; after four k there is a gap of eight words
template <int kSide, bool kAlongK>
struct PairTile {
  static constexpr int kWords = kSide * kPairSteps + (kAlongK ? 0 : kPairSteps / 4 * 8);
  static constexpr int kLine = kAlongK ? kPairSteps : 1;  // words from one line to the next, for lines eight apart

  static __device__ int place(int line, int k) {
    return kAlongK ? (line * 4 + (k / 4 ^ line / 2 % 4)) * 4 + k % 4 : k * kSide + k / 4 * 8 + line;
  }
  // The place of the lane's line among the eight from `first` on, a multiple of eight.
  static __device__ int place_of_lane(int first) { return place(lane_group(), 4 * lane_in_group()) + first * kLine; }
  static __device__ BytesOfFour read(const uint32_t* words) {
    uint4 x;
    if constexpr (kAlongK) x = *reinterpret_cast<const uint4*>(words);
    else x = make_uint4(words[0], words[kSide], words[2 * kSide], words[3 * kSide]);
    return {{bytes_of<true>(x.x, x.y), bytes_of<true>(x.z, x.w)},
            {bytes_of<false>(x.x, x.y), bytes_of<false>(x.z, x.w)}};
  }
};

// A thread's part in copying tiles: pieces of kWidth pairs that are neighbours in memory. kWidth is
// 4 if any four neighbours exist or are zero together and are in 16 aligned bytes (in_fours), else 1. Lines beyond the
// last repeat the first: their sums go nowhere.
template <class Operand, int kSide, int kWidth, int kThreads = 2 * kSide>
class PairCopier {
 public:
  using Tile = PairTile<kSide, Operand::kAlongK>;

  __device__ PairCopier(const Operand& operand, int batch, int first, int lines, int k)
      : operand_(operand), place_(operand.place(batch, k + step_of(0))) {
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      const int line = first + line_of(l);
      line_[l] = operand.line(batch, line < lines ? line : first, k + step_of(0));
    }
  }

  // Begins to copy the tile that starts `by` steps after the last one, at first after k, to the word `to` of
  // dynamic_shared(). Steps from `steps` on do not exist and become zero.
  __device__ void copy(int to, int by, int steps) {
    operand_.advance(line_, place_, by);
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      typename Operand::Line line[1] = {line_[l]};
      typename Operand::Place place = place_;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (p > 0) operand_.advance(line, place, step_of(p) - step_of(p - 1));
        const bool there = step_of(p) < steps && operand_.has(line[0], place);
        copy_async<4 * kWidth>(4 * static_cast<uint32_t>(to + Tile::place(line_of(l), step_of(p))),
                               there ? operand_.at(line[0], place) : nullptr, there);
      }
    }
  }

 private:
  static constexpr int kPairs = kSide * kPairSteps / kThreads;              // of a thread
  static constexpr int kLines = Operand::kAlongK ? kPairs / 4 : 1;          // of a thread
  static constexpr int kPieces = (Operand::kAlongK ? 4 : kPairs) / kWidth;  // of a line
  static constexpr int kAcross = Operand::kAlongK ? 4 : kSide / kWidth;     // threads side by side in memory

  // Neighbouring threads are neighbours along k in fours, or otherwise along i.
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int line_of(int l) {
    return Operand::kAlongK ? thread() / kAcross + l * (kThreads / kAcross) : thread() % kAcross * kWidth;
  }
  __device__ static int step_of(int p) {
    return Operand::kAlongK ? thread() % kAcross * 4 + p : thread() / kAcross + p * (kThreads / kAcross);
  }

  const Operand& operand_;
  typename Operand::Place place_;
  typename Operand::Line line_[kLines];
};

}  // namespace elinvar::HWY_NAMESPACE
