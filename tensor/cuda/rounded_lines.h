#pragma once
// Rounding of a tensor (rows, positions, channels) line by line (NUMERICS.md, rule E2): one kernel finds the largest
// magnitudes of rows, of channels, or of both in one pass; another rounds by them, again in one pass. Only
// ops/quantize.cu includes it.
//
// A line has the channels of one position. A block takes a slab of channels and a piece of a group's lines; its threads
// keep their channels, whose factors are in registers. A group is a row (or a pair of rows, where these are paired), or
// all rows if a row is one line. Maxima of integers have one value in whatever order they are taken, so blocks combine
// theirs by atomicMax.
#include "tensor/cuda/elements.h"
#include "tensor/cuda/quantize.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kLineThreads = 256;
constexpr int kColumns = 4;  // channels of a thread

// Exponents that numbers are rounded against, or, with a sign of -1, those of channels that were rounded against them.
// `most` has the largest of them; 0 is meant if it is null. Without exponents all factors are 1.
struct Against {
  const int32_t* exponents = nullptr;
  int32_t sign = 1;
  const int32_t* most = nullptr;
};
class Factors {
 public:
  __device__ Factors(const Against& of, int32_t most) : of_(of), most_(most) {}
  __device__ explicit Factors(const Against& of) : Factors(of, of.most ? *of.most : 0) {}
  __device__ int32_t exponent(int64_t i) const { return of_.exponents ? of_.sign * of_.exponents[i] : most_; }
  __device__ float of_exponent(int32_t exponent) const { return relative_scale(exponent, most_); }
  __device__ int32_t most() const { return most_; }

 private:
  Against of_;
  int32_t most_;
};

// Rows whose channels, or which themselves, are multiplied by the factors of what they are rounded against. Row r has
// the channels of group r / rows_of_group; there is one group if rows are lines. `period` is the number of channels,
// which is less than that of a line's elements if a line has several positions of a weight.
struct LinesToRound {
  const float* x;
  int64_t rows, rows_of_group;
  int positions, channels, period;
  Against against_channels, against_rows;
  const float *a = nullptr, *b = nullptr;  // of fma(x, a, b), or null
  bool relu = false;
};

// Whether elements are rounded by the exponent of their row, of their channel, or of both. `known` has exponents of
// rows and pairs rows, as `channels` does.
enum class Rounding { rows, channels, both, known };
constexpr bool by_rows(Rounding way) { return way == Rounding::rows || way == Rounding::both; }
constexpr bool by_channels(Rounding way) { return way == Rounding::channels || way == Rounding::both; }

// How lines are assigned to blocks.
struct LineGrid {
  int across;                         // threads of a line: a power of two up to 32
  int slabs, pieces, lines_of_piece;  // of a group
  int64_t groups;
  bool backwards = false;  // blocks take lines from the last to the first
  int64_t blocks() const { return groups * pieces * slabs; }
  __host__ __device__ int down() const { return kLineThreads / across; }
};

// A thread takes up to `lines_of_thread` lines, and fewer if the multiprocessors would have too few blocks.
inline LineGrid line_grid(int64_t groups, int64_t lines, int64_t channels, int lines_of_thread, int multiprocessors) {
  constexpr int kBlocksAtOnce = 2048 / kLineThreads;
  LineGrid grid{.across = 1, .slabs = 0, .pieces = 1, .lines_of_piece = 0, .groups = groups};
  while (grid.across < 32 && grid.across * kColumns < channels) grid.across *= 2;
  grid.slabs = static_cast<int>((channels + grid.across * kColumns - 1) / (grid.across * kColumns));
  for (int each = lines_of_thread; each > 0; each /= 2) {
    grid.lines_of_piece = grid.down() * each;
    grid.pieces = static_cast<int>(std::max<int64_t>((lines + grid.lines_of_piece - 1) / grid.lines_of_piece, 1));
    if (grid.blocks() >= int64_t{kBlocksAtOnce} * multiprocessors) break;
  }
  return grid;
}

// A block's lines [begin, end) of a group, and a thread's place among them.
struct LinePiece {
  int64_t group;
  int slab, begin, end, row, column;  // row, column: of the thread in the block
  __device__ LinePiece(const LineGrid& grid, int lines) {
    const auto block = static_cast<int>(grid.backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x),
               rest = block / grid.slabs;
    slab = block - rest * grid.slabs;
    group = rest / grid.pieces;
    begin = (rest - static_cast<int>(group) * grid.pieces) * grid.lines_of_piece;
    end = lines - begin < grid.lines_of_piece ? lines : begin + grid.lines_of_piece;
    row = static_cast<int>(threadIdx.x) / grid.across;
    column = static_cast<int>(threadIdx.x) % grid.across;
  }
};

// The channels of a thread: four adjacent ones in 16 aligned bytes, or two pairs.
template <bool kFours>
struct Columns {
  int first, next, count;  // next: from pair to pair; count: of all channels
  __device__ Columns(const LinePiece& at, int across, int channels)
      : first(at.slab * across * kColumns + at.column * (kFours ? kColumns : 2)), next(2 * across), count(channels) {}
  __device__ int operator[](int j) const { return kFours ? first + j : first + j / 2 * next + j % 2; }
  __device__ bool exists(int j) const { return (*this)[kFours ? 0 : j] < count; }
  // A channel that exists, for loads without branches.
  __device__ int existing(int j) const { return exists(j) ? (*this)[j] : 0; }
  // Absent numbers are 0.
  __device__ void load(const float* line, bool inside, float (&x)[kColumns]) const {
    if constexpr (kFours) {
      Some<float, kColumns> four{};
      if (inside && exists(0)) four = *reinterpret_cast<const Some<float, kColumns>*>(line + first);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) x[j] = four.v[j];
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) x[j] = inside && exists(j) ? line[(*this)[j]] : 0.0f;
    }
  }
  // Stores elements of a line as pairs of channels, or pairs of rows.
  __device__ void store_channels(uint32_t* line, const int32_t (&q)[kColumns]) const {
    if constexpr (kFours) {
      struct alignas(8) Two {
        uint32_t v[2];
      };
      if (exists(0)) *reinterpret_cast<Two*>(line + first / 2) = {pair_of(q[0], q[1]), pair_of(q[2], q[3])};
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; j += 2)
        if (exists(j)) line[(*this)[j] / 2] = pair_of(q[j], q[j + 1]);
    }
  }
  __device__ void store_rows(uint32_t* line, const int32_t (&low)[kColumns], const int32_t (&high)[kColumns]) const {
    if constexpr (kFours) {
      Some<uint32_t, kColumns> four;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) four.v[j] = pair_of(low[j], high[j]);
      if (exists(0)) *reinterpret_cast<Some<uint32_t, kColumns>*>(line + first) = four;
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        if (exists(j)) line[(*this)[j]] = pair_of(low[j], high[j]);
    }
  }
};

// The registers of a thread for its channels: factors, and the function of x if kFunction. Those of absent channels are
// 0, and turn 0 into 0.
template <bool kFunction>
struct OfColumns {
  float scale[kColumns], a[kColumns], b[kColumns];
  bool relu;
  template <bool kFours>
  __device__ OfColumns(const LinesToRound& from, const Factors& factors, const Columns<kFours>& columns, int64_t base)
      : relu(from.a && from.relu) {
    int32_t exponents[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int c = columns.existing(j) % from.period;
      exponents[j] = factors.exponent(base + c);
      if (!kFunction) continue;
      a[j] = from.a ? from.a[c] : 1.0f;
      b[j] = from.a ? from.b[c] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const bool exists = columns.exists(j);
      scale[j] = exists ? factors.of_exponent(exponents[j]) : 0.0f;
      if (!kFunction) continue;
      a[j] = exists ? a[j] : 0.0f;
      b[j] = exists ? b[j] : 0.0f;
    }
  }
  __device__ float value(float x, int j) const {
    if constexpr (!kFunction) return x;
    const float y = fma(Vec<float>{x}, Vec<float>{a[j]}, Vec<float>{b[j]}).v;
    return relu && y <= 0.0f ? 0.0f : y;
  }
};

struct Maxima {
  int32_t *rows, *channels;  // 0 at first
};

template <bool kFours, Rounding kWay, bool kLinesAreRows>
__global__ void __launch_bounds__(kLineThreads)
    largest_of_lines(const __grid_constant__ LinesToRound from, const LineGrid grid, const Maxima to) {
  constexpr bool kByRows = by_rows(kWay), kByChannels = by_channels(kWay);
  constexpr int kAtOnce = 4;  // loads of a thread that are under way together
  const int lines = kLinesAreRows ? static_cast<int>(from.rows) : from.positions, down = grid.down();
  const LinePiece at(grid, lines);
  const Columns<kFours> columns(at, grid.across, from.channels);
  const int64_t base = kLinesAreRows ? 0 : at.group / from.rows_of_group * from.period;
  const OfColumns<!kByChannels> of(from, Factors(from.against_channels), columns, base);
  const Factors of_rows(from.against_rows);
  const float of_group = kByChannels && !kLinesAreRows ? of_rows.of_exponent(of_rows.exponent(at.group)) : 0.0f;
  const float* const x = from.x + (kLinesAreRows ? 0 : at.group * lines * from.channels);
  int32_t of_channels[kColumns] = {}, of_row = 0;
  for (int first = at.begin; first < at.end; first += kAtOnce * down) {
    float loaded[kAtOnce][kColumns];
    int32_t exponents[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int line = first + k * down + at.row;
      columns.load(x + int64_t{line} * from.channels, line < at.end, loaded[k]);
      if (kByChannels && kLinesAreRows) exponents[k] = of_rows.exponent(line < at.end ? line : at.begin);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int line = first + k * down + at.row;
      const bool inside = line < at.end;
      const float row_scale = kByChannels && kLinesAreRows ? of_rows.of_exponent(exponents[k]) : of_group;
      int32_t here = 0;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const float value = of.value(loaded[k][j], j);
        if (kByRows) here = larger(here, magnitude(value * of.scale[j]));
        if (kByChannels) of_channels[j] = larger(of_channels[j], magnitude(value * row_scale));
      }
      if (!kByRows) continue;
      if (!inside) here = 0;  // the function of 0 may be another number
      if constexpr (kLinesAreRows) {
        for (int s = grid.across / 2; s > 0; s /= 2) here = larger(here, __shfl_xor_sync(kWholeWarp, here, s));
        if (inside && at.column == 0) atomicMax(to.rows + line, here);
      } else {
        of_row = larger(of_row, here);
      }
    }
  }
  constexpr int kWarps = kLineThreads / 32;
  if constexpr (kByRows && !kLinesAreRows) {
    __shared__ int32_t rows_of_warps[kWarps];
    of_row = block_largest(of_row, rows_of_warps);
    if (threadIdx.x == 0) atomicMax(to.rows + at.group, of_row);
  }
  if constexpr (kByChannels) {
    __shared__ int32_t of_warps[kWarps][kColumns * 32];
    const int thread = static_cast<int>(threadIdx.x), begin = at.slab * grid.across * kColumns;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      for (int s = grid.across; s < 32; s *= 2)
        of_channels[j] = larger(of_channels[j], __shfl_xor_sync(kWholeWarp, of_channels[j], s));
      if (lane() < grid.across) of_warps[thread / 32][columns[j] - begin] = of_channels[j];
    }
    __syncthreads();
    // Lanes have adjacent channels, of which the L2 cache takes eight at once.
    if (thread >= grid.across * kColumns || begin + thread >= from.channels) return;
    int32_t most = 0;
    for (int w = 0; w < kWarps; ++w) most = larger(most, of_warps[w][thread]);
    atomicMax(to.channels + base + begin + thread, most);
  }
}

// Results, and what they are rounded by: magnitudes of rows and channels, or exponents of rows that are known. What a
// way of rounding does not make, or does not need, is null.
struct RoundedLines {
  const int32_t *of_rows, *of_channels;
  uint32_t *channel_pairs, *row_pairs;
  int32_t *rows, *channels;
  bool find_most;  // whether exponents of channels that are known must be searched for the largest
};

template <bool kFours, Rounding kWay, bool kLinesAreRows>
__global__ void __launch_bounds__(kLineThreads, kFours ? 4 : 3)
    rounded_lines(const __grid_constant__ LinesToRound from, const LineGrid grid, const RoundedLines to) {
  constexpr bool kByRows = by_rows(kWay), kByChannels = by_channels(kWay), kKnown = kWay == Rounding::known;
  constexpr int kRows = kWay == Rounding::rows ? 1 : 2, kAtOnce = 4 / kRows;
  const int lines = kLinesAreRows ? static_cast<int>((from.rows + kRows - 1) / kRows) : from.positions,
            positions = kLinesAreRows ? 1 : from.positions, down = grid.down(), width = (from.channels + 1) / 2;
  const LinePiece at(grid, lines);
  const Columns<kFours> columns(at, grid.across, from.channels);
  const int64_t base = kLinesAreRows ? 0 : kRows * at.group / from.rows_of_group * from.period;
  int32_t most = from.against_channels.most ? *from.against_channels.most : 0;
  if (kKnown && to.find_most) {
    __shared__ int32_t of_warps[kLineThreads / 32];
    most = INT32_MIN;
    for (int i = static_cast<int>(threadIdx.x); i < from.period; i += kLineThreads)
      most = larger(most, from.against_channels.sign * from.against_channels.exponents[i]);
    most = block_largest(most, of_warps);
  }
  const OfColumns<!kByChannels> of(from, Factors(from.against_channels, most), columns, base);
  const Factors of_rows(from.against_rows);
  const auto& maxima = to.of_rows;

  // The magnitude or exponent by which row r is rounded, and the exponent that it is rounded against. Numbers of a row
  // that does not exist become 0.
  struct OfRow {
    int32_t known, against;
    bool exists;
  };
  const auto of_row = [&](int64_t r) {
    OfRow row{0, 0, r < from.rows};
    r = row.exists ? r : 0;
    if (kByRows || kKnown) row.known = maxima[r];
    if (kByChannels) row.against = of_rows.exponent(r);
    return row;
  };
  const auto times_of = [&](const OfRow& row) {
    return row.exists ? integer_scale(kKnown ? row.known - most : exponent_of(row.known)) : 0.0f;
  };
  const auto write_exponents = [&](int64_t r) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (r + i < from.rows) to.rows[r + i] = exponent_of(maxima[r + i]) + most;
  };
  float times[kColumns];
  if (kByChannels) {
    int32_t magnitudes[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) magnitudes[j] = to.of_channels[columns.existing(j)];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int32_t exponent = exponent_of(magnitudes[j]);
      times[j] = integer_scale(exponent);
      if (at.group == 0 && at.begin == 0 && at.row == 0 && columns.exists(j))
        to.channels[columns[j]] = exponent + of_rows.most();
    }
  }
  OfRow rows[kAtOnce][kRows];
  if (!kLinesAreRows) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) rows[0][i] = of_row(kRows * at.group + i);
    if (kByRows && at.slab == 0 && at.begin == 0 && threadIdx.x == 0) write_exponents(kRows * at.group);
  }
  for (int first = at.begin + at.row; first < at.end; first += kAtOnce * down) {
    float loaded[kAtOnce][kRows][kColumns];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int line = first + k * down;
      const int64_t row = kRows * (kLinesAreRows ? line : at.group), position = kLinesAreRows ? 0 : line;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        columns.load(from.x + ((row + i) * positions + position) * from.channels, line < at.end && row + i < from.rows,
                     loaded[k][i]);
        if (kLinesAreRows) rows[k][i] = of_row(row + i);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int line = first + k * down;
      if (line >= at.end) break;
      const int64_t row = kRows * (kLinesAreRows ? line : at.group), position = kLinesAreRows ? 0 : line;
      const OfRow(&of_rows_here)[kRows] = rows[kLinesAreRows ? k : 0];
      if (kLinesAreRows && kByRows && at.slab == 0 && at.column == 0) write_exponents(row);
      int32_t q[2][kColumns];  // of rows of a pair
      if (kByRows || kKnown) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const float row_times = times_of(of_rows_here[i]);
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            q[i][j] = quantized(of.value(loaded[k][i][j], j) * of.scale[j] * row_times);
          if (kByRows && row + i < from.rows)
            columns.store_channels(to.channel_pairs + ((row + i) * positions + position) * width, q[i]);
        }
      }
      if (kByChannels) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const float row_scale = of_rows.of_exponent(of_rows_here[i].against);
#pragma unroll
          for (int j = 0; j < kColumns; ++j) q[i][j] = quantized(loaded[k][i][j] * row_scale * times[j]);
        }
      }
      if (kRows == 2) columns.store_rows(to.row_pairs + (row / 2 * positions + position) * from.channels, q[0], q[1]);
    }
  }
}

}  // namespace elinvar::HWY_NAMESPACE
