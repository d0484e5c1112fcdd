#pragma once
// The micro-kernel under every product (matmul, convolution in its three directions, attention): a small tile of C
// is accumulated in registers over *runs* of consecutive k, in ascending order (NUMERICS.md, rule 8). What makes a
// convolution implicit is only where the runs point: a run's rows of A may lie anywhere in memory, so a filter tap
// is a run whose rows are pixels, and a tap that falls into the padding is no run at all (rule 7).
//
// Note [Reading past the end]. B is read in whole vectors, so up to kSlack bytes past the last column may be read;
// blocks of the HostAllocator have that slack. Columns of the tile that do not exist are never written.
#include <cstdint>

namespace elinvar {

inline constexpr int kMostTileRows = 8;

// k = 0 .. length-1 of one run: A(i, k) and B(k, j) with
//   A(i, k) = a_rows[i][k]           if a_rows is set: each row of the tile has an address of its own. All tile_rows
//                                    addresses must be readable, also where the tile has fewer rows
//   A(i, k) = a[k * tile_rows + i]   else: a packed panel
//   B(k, j) = tile.b[b_first + (b_row + k) * tile.b_step + j]
template <class T>
struct Run {
  const T* const* a_rows = nullptr;
  const T* a = nullptr;
  int64_t b_first = 0, b_row = 0;
  int64_t length = 0;
};

// C(i, j) for i < rows <= tile_rows, j < cols <= tile_cols: c_rows[i][c_offset + j]. All runs of a tile
// must be of one kind, a_rows or panel.
template <class T>
struct Tile {
  const Run<T>* runs;
  int64_t run_count;
  int rows, cols;
  T* const* c_rows;
  int64_t c_offset = 0;
  int64_t a_offset = 0;  // added to every panel address a, so that one list of runs serves many tiles
  const T* b;
  int64_t b_step;
  bool resume = false;      // acc starts from C instead of +0: the same chain goes on
  bool add = false;         // C = C + acc instead of C = 0 + acc: the next chunk of a group
  const T* bias = nullptr;  // then C = C + bias[j]
};

// The extents of a full tile on the current instruction set.
struct TileExtent {
  int rows;
  int lanes;    // columns come in vectors of this many,
  int vectors;  // at most so many a tile
  int cols() const { return lanes * vectors; }
};
TileExtent tile_extent(float);
TileExtent tile_extent(double);

void multiply_tile(const Tile<float>& tile);
void multiply_tile(const Tile<double>& tile);

// Columns dealt into strips of whole vectors, as even as possible (64 columns of 16 lanes are 2 + 2 vectors, not
// 3 + 1): strip s covers [begin(s), begin(s + 1)), the last one cut at `columns`.
struct Strips {
  int64_t columns, vectors, count;
  int lanes;
  Strips(int64_t columns_, TileExtent e)
      : columns(columns_),
        vectors((columns_ + e.lanes - 1) / e.lanes),
        count((vectors + e.vectors - 1) / e.vectors),
        lanes(e.lanes) {}
  int64_t begin(int64_t s) const { return vectors * s / count * lanes; }
  int64_t width(int64_t s) const { return begin(s + 1) - begin(s); }  // whole vectors
  int64_t exist(int64_t s) const { return s + 1 == count ? columns - begin(s) : width(s); }
  int64_t padded_columns() const { return vectors * lanes; }
};

}  // namespace elinvar
