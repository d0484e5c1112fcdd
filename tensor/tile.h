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

#include "tensor/numerics.h"

namespace elinvar {

inline constexpr int kMostTileRows = 8, kMostTileColumns = 64;  // maxima over the instruction sets

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

void multiply_tile(const Tile<float>& tile);
void multiply_tile(const Tile<double>& tile);

// A chunk of nominal k, and its place in the sum of rule 8.
struct Chunk {
  int64_t begin, end;
  bool opens_group, closes_group;
  bool first_group;  // its chunks are summed in C itself; those of later groups in a buffer that is added to C
  bool last;
};

// Calls f for the chunks of [begin, end), a part of nominal k in [0, k_count) that starts at a group and ends at one or
// at k_count. An empty range is one empty chunk.
template <class F>
void for_each_chunk(int64_t begin, int64_t end, int64_t k_count, F&& f) {
  constexpr int64_t kSpan = kChunk * kGroup;
  int64_t k = begin;
  do {
    const int64_t next = std::min(k + kChunk, end);
    f(Chunk{.begin = k,
            .end = next,
            .opens_group = k % kSpan == 0,
            .closes_group = next % kSpan == 0 || next == k_count,
            .first_group = k < kSpan,
            .last = next == k_count});
    k = next;
  } while (k < end);
}

// Whether add_chunk needs a buffer for groups.
inline bool many_groups(int64_t k_count) { return k_count > kChunk * kGroup; }

// Directs the tile's sum over `chunk` to rows of C, or of a buffer for one group.
template <class T>
void add_chunk(Tile<T>& tile, const Chunk& chunk, T* const* c_rows, T* const* group_rows, const T* bias = nullptr) {
  tile.c_rows = chunk.first_group ? c_rows : group_rows;
  tile.add = !chunk.opens_group;
  tile.total_rows = chunk.closes_group && !chunk.first_group ? c_rows : nullptr;
  tile.bias = chunk.last ? bias : nullptr;
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
