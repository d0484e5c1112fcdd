#pragma once
// Operands of exact products on a GPU (tensor/quantized.h): how a block of threads brings a tile of pairs to shared
// memory as integers of 8 bits (NUMERICS.md, "Exact numerics"): q = 128 h + l, where h = round(q / 128).
#include "tensor/cuda/operand.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kPairSteps = 16;  // pairs along k of a tile

// Adds four numbers of 8 bits.
__device__ inline uint32_t add_bytes(uint32_t a, uint32_t b) {
  return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}

// The lower bytes of the four halves of a and b.
__device__ inline uint32_t low_bytes(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  return __byte_perm(a, b, 0x6420);
#else
  return (a & 0xff) | (a >> 8 & 0xff00) | (b & 0xff) << 16 | (b << 8 & 0xff000000);
#endif
}

// The integers of four neighbouring pairs: two words of h and two of l.
__device__ inline uint4 slices_of(const uint32_t (&pairs)[4]) {
  constexpr uint32_t kMinus64 = 0xc0c0c0c0u;
  uint32_t sum[4];  // q + 8256 = 128 (h + 64) + (l + 64) of both numbers, which are not negative
#pragma unroll
  for (int e = 0; e < 4; ++e) sum[e] = ((pairs[e] & 0x7fff7fffu) + 0x20402040u) ^ (pairs[e] & 0x80008000u);
  uint32_t h[2], l[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    h[w] = add_bytes(low_bytes(sum[2 * w] >> 7, sum[2 * w + 1] >> 7), kMinus64);
    l[w] = add_bytes(low_bytes(sum[2 * w], sum[2 * w + 1]) & 0x7f7f7f7fu, kMinus64);
  }
  return make_uint4(h[0], h[1], l[0], l[1]);
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
