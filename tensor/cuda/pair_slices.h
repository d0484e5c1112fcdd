#pragma once
// Operands of exact products on a GPU (tensor/quantized.h): how a block of threads brings a tile of pairs to shared
// memory as integers of 8 bits (NUMERICS.md, "Exact numerics"): q = 256 h + l, where h = round(q / 256).
#include "tensor/cuda/operand.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kPairSteps = 16;  // pairs along k of a tile

// The lower or the upper bytes of the four halves of a and b.
template <bool kUpper>
__device__ uint32_t bytes_of(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  return __byte_perm(a, b, kUpper ? 0x7531 : 0x6420);
#else
  if (kUpper) a >>= 8, b >>= 8;
  return (a & 0xff) | (a >> 8 & 0xff00) | (b & 0xff) << 16 | (b << 8 & 0xff000000);
#endif
}

// The integers of four neighbouring pairs: two words of h and two of l. l is the lower byte of q, and h the upper byte
// of q + 128.
__device__ inline uint4 slices_of(const uint32_t (&pairs)[4]) {
  uint32_t sum[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) sum[e] = ((pairs[e] & 0x7fff7fffu) + 0x00800080u) ^ (pairs[e] & 0x80008000u);
  return make_uint4(bytes_of<true>(sum[0], sum[1]), bytes_of<true>(sum[2], sum[3]), bytes_of<false>(pairs[0], pairs[1]),
                    bytes_of<false>(pairs[2], pairs[3]));
}

// A tile of kSide lines. Four neighbouring pairs of a line are a unit of 16 bytes. Units are permuted so that there are
// no bank conflicts, whether eight threads take two lines or one unit of eight lines.
template <int kSide>
struct alignas(16) SliceTile {
  uint4 at[kSide * 4];
  static __device__ int place(int line, int unit) { return line * 4 + (unit ^ line / 2 % 4); }
};

// A thread's part in loading tiles, as TileLoader: pairs stay in registers until store(). kWidth is 4 if four
// neighbours along k are in 16 aligned bytes, else 1.
template <class Operand, int kSide, int kThreads, int kWidth>
class PairLoader {
 public:
  using Tile = SliceTile<kSide>;

  __device__ PairLoader(const Operand& operand, int batch, int first, int lines, int k)
      : operand_(operand), place_(operand.place(batch, k + offset())) {
#pragma unroll
    for (int p = 0; p < kLines; ++p) {
      exists_[p] = first + line_of(p) < lines;
      line_[p] = operand.line(batch, exists_[p] ? first + line_of(p) : first, k + offset());
    }
  }

  // Starts to load the tile that begins `by` steps after the last one, at first after k, of which `steps` steps exist.
  // Others are zero and not read.
  __device__ void load(int by, int steps) {
    operand_.advance(line_, place_, by);
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      typename Operand::Line line[1] = {line_[l]};
      typename Operand::Place place = place_;
      int left = exists_[l] ? steps - offset() : 0;
#pragma unroll
      for (int u = l; u < kUnits; u += kLines) {
        if constexpr (Operand::kAlongK && kWidth == 4) {
          uint4 four = make_uint4(0, 0, 0, 0);
          if (left > 0 && operand_.has(line[0], place))
            four = *reinterpret_cast<const uint4*>(operand_.at(line[0], place));
          unit_[u][0] = four.x, unit_[u][1] = four.y, unit_[u][2] = four.z, unit_[u][3] = four.w;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            unit_[u][e] = 0;
            if (left > e && operand_.has(line[0], place)) unit_[u][e] = *operand_.at(line[0], place);
            operand_.advance(line, place, e < 3 ? 1 : kNextUnit - 3);
          }
          left -= kNextUnit;
        }
      }
    }
  }

  __device__ void store(Tile& tile) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) tile.at[Tile::place(line_of(u), unit_of(u))] = slices_of(unit_[u]);
  }

 private:
  static_assert(kPairSteps == 16 && kThreads % kSide == 0 && kSide * 4 % kThreads == 0);
  static constexpr int kUnits = kSide * 4 / kThreads;           // of a thread
  static constexpr int kLines = Operand::kAlongK ? kUnits : 1;  // of a thread
  static constexpr int kNextUnit = kThreads / kSide * 4;        // steps to the thread's next unit of a line

  // Neighbouring threads are neighbours along k in fours, or otherwise along i.
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int unit_of(int u) {
    return Operand::kAlongK ? thread() % 4 : thread() / kSide + u * (kThreads / kSide);
  }
  __device__ static int line_of(int u) {
    return Operand::kAlongK ? thread() / 4 + u * (kThreads / 4) : thread() % kSide;
  }
  __device__ static int offset() { return 4 * unit_of(0); }

  const Operand& operand_;
  typename Operand::Place place_;
  typename Operand::Line line_[kLines];
  bool exists_[kLines];
  uint32_t unit_[kUnits][4];
};

}  // namespace elinvar::HWY_NAMESPACE
