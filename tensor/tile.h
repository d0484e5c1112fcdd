#pragma once
// The micro-kernel under every product (matmul, convolution in its three directions, attention): a small tile of C is
// accumulated in registers over *runs* of consecutive k, in ascending order (NUMERICS.md, rule 8). Convolution is
// implicit because each filter tap is a run, and a tap in the padding is none (rule 7). A longer k is summed chunk by
// chunk, by for_each_chunk and add_chunk below.
//
// Note [Reading past the end]. B is read in whole vectors, so up to kSlack bytes past the last column may be read;
// blocks of the HostAllocator have that slack. Columns of the tile that do not exist are never written.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tensor/numerics.h"

namespace elinvar {

inline constexpr int kMostTileRows = 32, kMostTileColumns = 64;  // maxima over the instruction sets

// Two terms of a factor of an exact product (tensor/quantized.h), as one element. A product of such elements sums both.
struct Pair {
  int16_t first = 0, second = 0;
};

// The type of C, and that of sums over parts of k. Sums of pairs are integers below 2^53, which float64 holds exactly.
template <class T>
struct SumTypes {
  using Result = T;
  using Partial = T;
};
template <>
struct SumTypes<Pair> {
  using Result = float;
  using Partial = double;
};
template <class T>
using ResultOf = typename SumTypes<T>::Result;
template <class T>
using PartialOf = typename SumTypes<T>::Partial;

// One run, k = 0 .. length-1: A(i, k) and B(k, j) with
//   A(i, k) = tile.a_rows[i][a + k]            if a_rows is set. All tile_rows addresses must be readable, also if
//                                              the tile has fewer rows
//   A(i, k) = tile.panel[(a + k) * tile_rows + i]   otherwise
//   B(k, j) = tile.b[b_first + (b_row + k) * tile.b_step + j]
struct Run {
  int64_t a = 0;
  int64_t b_first = 0, b_row = 0;
  int64_t length = 0;
};

// A tile of C: C(i, j) for i < rows <= tile_rows, j < cols <= tile_cols is c_rows[i][c_offset + j].
template <class T>
struct Tile {
  const Run* runs;
  int64_t run_count;
  int tile_rows;  // rows of the product's TileExtent
  int rows, cols;
  const T* const* a_rows = nullptr;
  const T* panel = nullptr;
  const T* b;
  int64_t b_step;
  T* const* c_rows = nullptr;
  int64_t c_offset = 0;
  const T* next = nullptr;  // if set, prefetched: one element per k, next_step apart
  int64_t next_step = 0;
  bool resume = false;             // acc starts from C instead of +0, to continue a chain
  bool add = false;                // C = C + acc instead of C = 0 + acc: the next chunk of a group
  T* const* total_rows = nullptr;  // if set, total = total + C: C was a group, and this its last chunk
  const T* bias = nullptr;         // if set, bias[j] is added to C, or to total
};

// A tile of an exact product. Its sum S is finished as S 2^(row_exponents[i] + column_exponents[j] - 26), by the rule
// of tensor/quantized.h, plus bias[j], and is written to C(i, j) or added to it.
template <>
struct Tile<Pair> {
  const Run* runs;
  int64_t run_count;
  int tile_rows;
  int rows, cols;
  const Pair* const* a_rows = nullptr;
  const Pair* panel = nullptr;
  const Pair* b;
  int64_t b_step;
  float* const* c_rows = nullptr;
  int64_t c_offset = 0;
  const Pair* next = nullptr;
  int64_t next_step = 0;
  double* const* sum_rows = nullptr;  // if set, sums over parts of k, at the offsets of C
  bool add = false;                   // S is the tile's sum plus that in sum_rows
  bool finish = true;                 // S is finished and written to C; otherwise it is written to sum_rows
  bool add_to_c = false;              // adds to C instead of writing it
  const int32_t* row_exponents = nullptr;
  const int32_t* column_exponents = nullptr;
  const float* bias = nullptr;
  const int16_t* carries = nullptr;  // a plan for its carries (tensor/carries.h)
};

// The extents of a full tile on the current instruction set. They depend on the product's columns: tiles with more
// columns and fewer rows are used if they make fewer strips.
struct TileExtent {
  int rows;
  int lanes;    // columns per vector
  int vectors;  // most vectors per tile
  int cols() const { return lanes * vectors; }
};
TileExtent tile_extent(float, int64_t columns);
TileExtent tile_extent(double, int64_t columns);
TileExtent tile_extent(Pair, int64_t columns);

void multiply_tile(const Tile<float>& tile);
void multiply_tile(const Tile<double>& tile);
void multiply_tile(const Tile<Pair>& tile);

// The most elements of a chunk along k. Parts of exact sums are kept in float64, so longer chunks save time.
template <class T>
constexpr int64_t chunk_length() {
  return std::is_same_v<T, Pair> ? 2 * kChunk : kChunk;
}

// Sums of so many pairs of the largest numbers fit into their type (tensor/pair_tile.h).
inline constexpr int64_t kPairsPerCarry = 16;

// A chunk of nominal k, and its place in the sum of rule 8. Exact sums have no order; all of their chunks are one
// group.
struct Chunk {
  int64_t begin, end;
  bool opens_group, closes_group;
  bool in_place;  // the group's chunks are summed in C itself; otherwise in a buffer that is added to C
  bool last;
};

// The length of a group, and whether a sum over k needs a buffer for groups. C cannot hold parts of an exact sum.
template <class T>
constexpr int64_t group_length() {
  return std::is_same_v<T, Pair> ? INT64_MAX : kChunk * kGroup;
}
template <class T>
constexpr bool needs_buffer(int64_t k_count) {
  return k_count > (std::is_same_v<T, Pair> ? chunk_length<T>() : group_length<T>());
}

// Calls f for the chunks of [begin, end), a part of nominal k in [0, k_count) that starts at a group and ends at one or
// at k_count. An empty range is one empty chunk. Exact sums are cut evenly.
template <class T, int64_t kMost = chunk_length<T>(), class F>
void for_each_chunk(int64_t begin, int64_t end, int64_t k_count, F&& f) {
  constexpr int64_t kSpan = group_length<T>();
  int64_t k = begin;
  do {
    const int64_t rest = (end - k + kMost - 1) / kMost,
                  next = std::is_same_v<T, Pair> && rest > 0 ? k + (end - k) / rest : std::min(k + kMost, end);
    f(Chunk{.begin = k,
            .end = next,
            .opens_group = k % kSpan == 0,
            .closes_group = next % kSpan == 0 || next == k_count,
            .in_place = std::is_same_v<T, Pair> ? k_count <= kMost : k < kSpan,
            .last = next == k_count});
    k = next;
  } while (k < end);
}

// The bias and the exponents of a finished sum, and whether C takes it or adds it.
template <class T>
struct Epilogue {
  const T* bias = nullptr;  // of each column
  Epilogue at(int64_t column) const { return {bias ? bias + column : nullptr}; }
};
template <>
struct Epilogue<Pair> {
  const float* bias = nullptr;
  const int32_t* exponents = nullptr;  // of each column
  bool add_to_c = false;
  Epilogue at(int64_t column) const { return {bias ? bias + column : nullptr, exponents + column, add_to_c}; }
};

// Directs the tile's sum over `chunk` to rows of C, or of a buffer for one group.
template <class T>
void add_chunk(Tile<T>& tile, const Chunk& chunk, T* const* c_rows, T* const* group_rows,
               const Epilogue<T>& epilogue = {}) {
  tile.c_rows = chunk.in_place ? c_rows : group_rows;
  tile.add = !chunk.opens_group;
  tile.total_rows = chunk.closes_group && !chunk.in_place ? c_rows : nullptr;
  tile.bias = chunk.last ? epilogue.bias : nullptr;
}
inline void add_chunk(Tile<Pair>& tile, const Chunk& chunk, float* const* c_rows, double* const* sum_rows,
                      const Epilogue<Pair>& epilogue) {
  tile.c_rows = c_rows;
  tile.sum_rows = chunk.in_place ? nullptr : sum_rows;
  tile.add = !chunk.opens_group;
  tile.finish = chunk.last;
  tile.add_to_c = epilogue.add_to_c;
  tile.column_exponents = epilogue.exponents;
  tile.bias = epilogue.bias;
}

// Splits columns into strips of whole vectors, as evenly as possible (5 vectors are 2 + 3, 7 are 3 + 4). Strip s covers
// [begin(s), begin(s + 1)); the last one is cut at `columns`.
struct Strips {
  int64_t columns;
  TileExtent extent;
  int64_t vectors, count;
  int64_t narrow, narrow_count;  // vectors of each of the first strips, and their number; others have one vector more
  Strips(int64_t columns_, TileExtent e)
      : columns(columns_),
        extent(e),
        vectors((columns_ + e.lanes - 1) / e.lanes),
        count((vectors + e.vectors - 1) / e.vectors),
        narrow(count > 0 ? vectors / count : 0),
        narrow_count(count - (vectors - narrow * count)) {}
  int64_t begin(int64_t s) const { return (narrow * s + std::max<int64_t>(0, s - narrow_count)) * extent.lanes; }
  int64_t width(int64_t s) const { return begin(s + 1) - begin(s); }  // whole vectors
  int64_t exist(int64_t s) const { return s + 1 == count ? columns - begin(s) : width(s); }
  int64_t padded_columns() const { return vectors * extent.lanes; }
};

}  // namespace elinvar
