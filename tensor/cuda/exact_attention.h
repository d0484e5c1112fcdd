#pragma once
// Exact attention on a GPU (NUMERICS.md, rule E7): products of tiles of a head by a block, on tensor cores for
// integers, and how scores become factors. Only ops/exact_attention*.cu include it.
//
// A block keeps 64 rows (queries, or keys for their gradients) in shared memory, and passes over tiles of 32 of the
// others: so the sums of a score and those of a result fit into a thread's registers together.
#include <cstddef>

#include "tensor/cuda/attention_tile.h"
#include "tensor/cuda/exact_product.h"
#include "tensor/cuda/quantize.h"
#include "tensor/ops/exact_attention.h"

namespace elinvar::HWY_NAMESPACE::exact {

constexpr int kSide = kAttentionSide, kOthers = kSide / 2, kThreads = 2 * kSide;
constexpr int kBlocks = 2;  // of a multiprocessor
static_assert(kSide == kExactQueryBlock && kOthers == 2 * kPairSteps);

using Rows = MatrixOperand<true, uint32_t>;
using RowPairs = MatrixOperand<false, uint32_t>;
using ScoreSums = ExactSums<kSide, kOthers, true, true>;
using ResultSums = ExactSums<kSide, kSide, true, false>;
static_assert(kChunk <= ScoreSums::kShortSum && kSide <= ResultSums::kShortSum && kMostKeys <= ResultSums::kMostTerms);

// Tiles in shared memory: a factor that is kept, or weights; rows of others; the same in pairs of rows. Functions take
// the index of a tile's first word in dynamic_shared(), as copies do.
using Factor = uint32_t[PairTile<kSide, true>::kWords];
using Others = uint32_t[PairTile<kOthers, true>::kWords];
using Paired = uint32_t[PairTile<kSide, false>::kWords];
constexpr int words_in(size_t bytes) { return static_cast<int>(bytes / sizeof(uint32_t)); }
template <class Tile>
constexpr int kWordsOf = words_in(sizeof(Tile));

// A thread's numbers of a tile, where its sums are. each<Sums>(f) calls f(r, c) for them.
constexpr int kRows = ScoreSums::kRows;
template <class Sums>
using Numbers = float[kRows][Sums::kColumns];
template <class Sums, class F>
__device__ void each(F f) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < Sums::kColumns; ++c) f(r, c);
}
__device__ inline int row_of(int r) { return ScoreSums::row(r); }

// The number of keys that query i sees, as AttentionShape has it.
__device__ inline int seen_by(const AttentionShape& s, int i) {
  const int keys = static_cast<int>(s.tk), n = i + 1 + keys - static_cast<int>(s.tq);
  return s.causal && n < keys ? n : keys;
}

// One head: rows over time, and their exponents.
struct ExactHead {
  Rows rows;
  const int32_t* exponents;
  int64_t time;
  int count;

  __device__ ExactHead(const QuantizedHeads& all, int64_t b, int64_t h, int64_t rows_of_head)
      : rows{static_cast<const uint32_t*>(all.q) + (b * all.batch + h * all.head) * all.width, all.time * all.width, 1,
             0},
        exponents(all.exponents + b * all.batch + h * all.head),
        time(all.time),
        count(static_cast<int>(rows_of_head)) {}
  // The exponent of row t; one that does not exist has 0.
  __device__ int32_t exponent(int t) const { return t < count ? exponents[t * time] : 0; }
};

// Rows 2 t and 2 t + 1 in pairs, (B, H, (T + 1) / 2, D), for products that sum over rows of heads.
struct PairedHeads {
  uint32_t* pairs;
  int64_t heads, pair_count, size;
  __device__ RowPairs of(int64_t b, int64_t h) const {
    return {pairs + (b * heads + h) * pair_count * size, 1, size, 0};
  }
};

// Threads take kWords words of two rows. `units` of them are in a row.
template <int kWords>
static __global__ void pair_rows_of_heads(const QuantizedHeads from, int units, int64_t batch, int64_t time,
                                          const PairedHeads to) {
  const int pairs = static_cast<int>(to.pair_count), size = static_cast<int>(to.size);
  for (int64_t i = thread_of_grid(); i < batch * to.heads * pairs * units; i += grid_stride()) {
    const int64_t row = i / units, all_heads = row / pairs, b = all_heads / to.heads, h = all_heads - b * to.heads;
    const int word = static_cast<int>(i - row * units) * kWords;
    const int64_t t = 2 * (row - all_heads * pairs);
    const uint32_t* const first =
        static_cast<const uint32_t*>(from.q) + (b * from.batch + t * from.time + h * from.head) * from.width + word;
    interleave<kWords>(first, t + 1 < time ? first + from.time * from.width : nullptr, to.pairs + row * size + 2 * word,
                       size - 2 * word);
  }
}

// largest[b, h, t] is the largest exponent of rows 0 .. t. One warp for each head, whose lanes load several exponents
// at once.
static __global__ void largest_exponents(QuantizedHeads from, int64_t batch, int64_t heads, int64_t time,
                                         int32_t* largest) {
  constexpr int kAtOnce = 8;
  const int64_t head = thread_of_grid() / 32;
  if (head >= batch * heads) return;
  const int32_t* const exponents = from.exponents + head / heads * from.batch + head % heads * from.head;
  int32_t before = INT32_MIN;
  for (int64_t first = lane(); first - lane() < time; first += 32 * kAtOnce) {
    int32_t most[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      most[k] = first + 32 * k < time ? exponents[(first + 32 * k) * from.time] : before;
#pragma unroll
    for (int s = 1; s < 32; s *= 2)
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        most[k] = larger(most[k], __shfl_sync(kWholeWarp, most[k], larger(lane() - s, 0)));
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      most[k] = larger(most[k], before);
      if (first + 32 * k < time) largest[head * time + first + 32 * k] = most[k];
      before = __shfl_sync(kWholeWarp, most[k], 31);
    }
  }
}

// Scratch memory for the above.
class HeadPairs {
 public:
  HeadPairs(Gpu& stream, const QuantizedHeads& heads, int64_t batch, int64_t count, int64_t time, int64_t size)
      : scratch_(stream, batch * count * ((time + 1) / 2) * size),
        paired_{scratch_.data(), count, (time + 1) / 2, size} {
    const bool fours = size % 8 == 0 && reinterpret_cast<uintptr_t>(heads.q) % 16 == 0;
    const int units = static_cast<int>((size + 1) / 2) / (fours ? 4 : 1);
    launch(stream, "exact_attention_pairs", {.blocks = blocks_for(batch * count * paired_.pair_count * units)},
           fours ? pair_rows_of_heads<4> : pair_rows_of_heads<1>, heads, units, batch, time, paired_);
  }
  const PairedHeads& paired() const { return paired_; }

 private:
  DeviceScratch<uint32_t> scratch_;
  PairedHeads paired_;
};
class LargestExponents {
 public:
  LargestExponents(Gpu& stream, const QuantizedHeads& heads, int64_t batch, int64_t count, int64_t time)
      : scratch_(stream, batch * count * time) {
    launch(stream, "exact_attention_exponents", {.blocks = warp_blocks(batch * count)}, largest_exponents, heads, batch,
           count, time, scratch_.data());
  }
  const int32_t* data() const { return scratch_.data(); }

 private:
  DeviceScratch<int32_t> scratch_;
};

// The tiles that hold the channels of rows.
constexpr int steps_of(int64_t size) { return static_cast<int>((size + 2 * kPairSteps - 1) / (2 * kPairSteps)); }

// Begins to copy rows from i0 on to `to`.
template <int kWidth>
__device__ void keep_rows(const ExactHead& x, int i0, int size, int to) {
  const int pairs = (size + 1) / 2;
  PairCopier<Rows, kSide, kWidth> rows(x.rows, 0, i0, x.count, 0);
  for (int step = 0; step < steps_of(size); ++step)
    rows.copy(to + step * kWordsOf<Factor>, step == 0 ? 0 : kPairSteps, pairs - step * kPairSteps);
}

template <class Sums>
__device__ void add_product(Sums& sums, int a, int b) {
  const auto* const words = dynamic_shared<uint32_t>();
  sums.add(words + a, words + b);
}

// out = rows kept, with exponents row_exponent(r), times rows [j0, j0 + kOthers) of y. All threads of a block call it.
// It awaits earlier copies, and ends with a barrier.
template <int kWidth, class Exponent>
__device__ void score(int kept, Exponent row_exponent, const ExactHead& y, int j0, int size, int tiles,
                      Numbers<ScoreSums>& out) {
  const int pairs = (size + 1) / 2;
  // Numbers of rows that do not exist are those of others.
  PairCopier<Rows, kOthers, kWidth, kThreads> rows(y.rows, 0, j0 < y.count ? j0 : 0, y.count, 0);
  ScoreSums sums;
  rows.copy(tiles, 0, pairs);
  for (int step = 0; step < steps_of(size); ++step) {
    await_copies();  // the tile is complete, and the other one is no longer read
    if (step + 1 < steps_of(size))
      rows.copy(tiles + (step + 1) % 2 * kWordsOf<Others>, kPairSteps, pairs - (step + 1) * kPairSteps);
    add_product(sums, kept + step * kWordsOf<Factor>, tiles + step % 2 * kWordsOf<Others>);
  }
  __syncthreads();
  int32_t column_exponents[ScoreSums::kColumns];
#pragma unroll
  for (int c = 0; c < ScoreSums::kColumns; ++c) column_exponents[c] = y.exponent(j0 + ScoreSums::column(c));
  each<ScoreSums>(
      [&](int r, int c) { out[r][c] = scaled(sums.short_sum(r, c), row_exponent(r) + column_exponents[c]); });
}

// Begins to copy rows [first, first + kOthers) of y, of which y_rows exist, in pairs: columns from c0 on.
template <int kWidth>
__device__ void copy_pairs(const RowPairs& y, int y_rows, int first, int c0, int size, int to) {
  PairCopier<RowPairs, kSide, kWidth>(y, 0, c0, size, first / 2).copy(to, 0, (y_rows + 1 - first) / 2);
}

// Combines x[r] of all threads that have numbers of a row; each gets the result. `halves` is free after the next
// barrier.
template <class T, class F>
__device__ void across_row(T (&x)[kRows], T (&halves)[2][kSide], F f) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (const int other : {1, 2}) x[r] = f(x[r], __shfl_xor_sync(kWholeWarp, x[r], other));
    if (lane_in_group() == 0) halves[ScoreSums::column(0) / (kOthers / 2)][row_of(r)] = x[r];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = f(halves[0][row_of(r)], halves[1][row_of(r)]);
}

// Calls f(r) in one of the threads that have numbers of a row. A barrier must follow.
template <class F>
__device__ void each_row(F f) {
  if (ScoreSums::column(0) != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) f(r);
}

// Stores a score's tile of integers as a factor of the sums over its columns.
template <class Integer>
__device__ void store_factor(int to, Integer integer) {
  auto* const words = dynamic_shared<uint32_t>() + to;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < ScoreSums::kColumns; c += 2)
      words[PairTile<kSide, true>::place(row_of(r), ScoreSums::column(c) / 2)] =
          pair_of(integer(r, c), integer(r, c + 1));
}

// Calls f(r, c, place) for the thread's results in the rows of a head from i0 on, below `rows`, and their elements from
// c0 on, below `size`.
template <class F>
__device__ void each_place(const HeadsView& to, int64_t b, int64_t h, int i0, int rows, int c0, int size, F f) {
  each<ResultSums>([&](int r, int c) {
    const int i = i0 + row_of(r), d = c0 + ResultSums::column(c);
    if (i < rows && d < size) f(r, c, to.of<float>(b, h)[i * to.time + d]);
  });
}

// Whether any four pairs of channels, and of rows, are in 16 aligned bytes.
inline bool heads_in_fours(const AttentionShape& s, std::initializer_list<QuantizedHeads> all) {
  return s.size % 8 == 0 && std::all_of(all.begin(), all.end(), [](const QuantizedHeads& x) {
           return reinterpret_cast<uintptr_t>(x.q) % 16 == 0;
         });
}

// The grid of a kernel whose blocks share a Shared and the channels of so many sets of rows.
template <class Shared>
Grid grid_of(int64_t heads, int64_t rows, int64_t size, int sets) {
#ifdef __CUDACC__
  int device = 0, most = 0;
  check_launch("exact attention", cudaGetDevice(&device));
  check_launch("exact attention", cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const auto largest = (most - static_cast<int>(sizeof(Shared))) / (sets * static_cast<int>(sizeof(Factor))) * 32;
  if (size > largest)
    throw UsageError("[exact_attention] this GPU takes heads of at most " + std::to_string(largest) +
                     " elements, got " + std::to_string(size) + "; use --device cpu, or portable numerics");
#endif
  return {.blocks = blocks_of(heads, rows, size),
          .threads = kThreads,
          .shared = sizeof(Shared) + static_cast<size_t>(sets * steps_of(size)) * sizeof(Factor)};
}

}  // namespace elinvar::HWY_NAMESPACE::exact
