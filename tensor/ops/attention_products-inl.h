// Products of queries with keys and of weights with values, for any target (NUMERICS.md, rule 14).
#if defined(ELINVAR_ATTENTION_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_ATTENTION_PRODUCTS_INL_H_
#undef ELINVAR_ATTENTION_PRODUCTS_INL_H_
#else
#define ELINVAR_ATTENTION_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "tensor/carries.h"
#include "tensor/numerics.h"
#include "tensor/ops/attention.h"
#include "tensor/pack.h"
#include "tensor/scratch.h"
#include "tensor/simd-inl.h"
#include "tensor/tile.h"

#ifndef ELINVAR_TENSOR_OPS_ATTENTION_PRODUCTS_ONCE_
#define ELINVAR_TENSOR_OPS_ATTENTION_PRODUCTS_ONCE_
namespace elinvar {

constexpr int64_t kQueryBlock = 64;  // queries whose scores are in cache at once
static_assert(kChunk % kQueryBlock == 0, "a chunk of queries is a whole number of blocks");

}  // namespace elinvar
#endif

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// A factor B (k_count, columns) of products, packed for tiles. pack() reads element (k, j) at from[k * k_step + j *
// j_step], so that it can also pack a transposed matrix.
template <class T>
struct PackedOperand {
  int64_t k_count;
  Strips strips;
  Scratch<T> data;

  PackedOperand(int64_t k_count_, int64_t columns)
      : k_count(k_count_), strips(columns, tile_extent(T{}, columns)), data(k_count_ * strips.padded_columns()) {}

  void pack(const T* from, int64_t k_step, int64_t j_step) {
    for (int64_t s = 0; s < strips.count; ++s)
      pack_strip(from + strips.begin(s) * j_step, k_step, j_step, k_count, strips.exist(s), strips.width(s), strip(s));
  }
  T* strip(int64_t s) const { return data.data() + k_count * strips.begin(s); }

  // Plans the carries of exact products with so many rows, also of those over fewer k and columns.
  void plan(int64_t rows) {
    if constexpr (std::is_same_v<T, Pair>) {
      const bool useful = rows >= kPlannedTiles * strips.extent.rows && k_count <= chunk_length<T>();
      plans_.resize(useful ? static_cast<size_t>(strips.count) : 0);
      const Run run{.length = k_count};
      for (int64_t s = 0; s < std::ssize(plans_); ++s)
        plans_[static_cast<size_t>(s)].measure({.runs = &run,
                                                .run_count = 1,
                                                .tile_rows = strips.extent.rows,
                                                .rows = 0,
                                                .cols = static_cast<int>(strips.exist(s)),
                                                .b = strip(s),
                                                .b_step = strips.width(s)});
    }
  }
  const int16_t* carries(int64_t s) const {
    return plans_.empty() ? nullptr : plans_[static_cast<size_t>(s)].carries();
  }

 private:
  std::vector<CarryPlan> plans_;
};

// c_rows[i][j] = sum over k in [0, k_end) of a_rows[i][k] * B[k][j] for the first `columns` j, in chunks and groups
// (NUMERICS.md, rule 8), or as an exact product with these exponents of the rows and of all columns (rule E4).
template <class T>
void multiply_rows(const T* const* a_rows, int rows, int64_t k_end, const PackedOperand<T>& b, int64_t columns,
                   ResultOf<T>* const* c_rows, const Exponents& exponents) {
  PartialOf<T> group[kMostTileRows][kMostTileColumns];
  PartialOf<T>* group_rows[kMostTileRows];
  Epilogue<T> epilogue;
  if constexpr (std::is_same_v<T, Pair>) epilogue.exponents = exponents.columns;
  for (int64_t s = 0; s < b.strips.count && b.strips.begin(s) < columns; ++s) {
    for (int i = 0; i < b.strips.extent.rows; ++i) group_rows[i] = group[i] - b.strips.begin(s);
    for_each_chunk<T>(0, k_end, k_end, [&](const Chunk& chunk) {
      const Run run{.a = chunk.begin, .b_row = chunk.begin, .length = chunk.end - chunk.begin};
      Tile<T> tile{.runs = &run,
                   .run_count = 1,
                   .tile_rows = b.strips.extent.rows,
                   .rows = rows,
                   .cols = static_cast<int>(std::min(b.strips.width(s), columns - b.strips.begin(s))),
                   .a_rows = a_rows,
                   .b = b.strip(s),
                   .b_step = b.strips.width(s),
                   .c_offset = b.strips.begin(s)};
      if constexpr (std::is_same_v<T, Pair>) tile.row_exponents = exponents.rows, tile.carries = b.carries(s);
      add_chunk(tile, chunk, c_rows, group_rows, epilogue.at(tile.c_offset));
      multiply_tile(tile);
    });
  }
}

// Multiplies a row for each query in [q0, q1), the first at `a`, by B, and writes the results to rows from `c` on. Keys
// are either the summed index (weights times values) or the columns (queries times keys); each query takes only the
// keys that it sees. In an exact product summed keys come in pairs, exponents are those of the queries from q0 on and
// of all columns, also of those that B is padded with, and rows of results have room for those.
enum class Keys : uint8_t { summed, columns };
template <Keys kKeys, class T>
void multiply_queries(const AttentionShape& s, int64_t q0, int64_t q1, const T* a, int64_t a_step,
                      const PackedOperand<T>& b, ResultOf<T>* c, int64_t c_step, const Exponents& exponents = {}) {
  const TileExtent extent = b.strips.extent;
  for (int64_t i = q0; i < q1; i += extent.rows) {
    const int count = static_cast<int>(std::min<int64_t>(extent.rows, q1 - i));
    const T* a_rows[kMostTileRows];
    ResultOf<T>* c_rows[kMostTileRows];
    for (int r = 0; r < extent.rows; ++r) {
      const int64_t row = i - q0 + std::min(r, count - 1);
      a_rows[r] = a + row * a_step;
      c_rows[r] = c + row * c_step;
    }
    int64_t seen = s.visible(i + count - 1);
    if constexpr (kKeys == Keys::columns && std::is_same_v<T, Pair>)  // whole vectors are written faster
      seen = (seen + extent.lanes - 1) / extent.lanes * extent.lanes;
    const Exponents here{exponents.rows ? exponents.rows + (i - q0) : nullptr, exponents.columns};
    if constexpr (kKeys == Keys::columns) multiply_rows(a_rows, count, b.k_count, b, seen, c_rows, here);
    else multiply_rows(a_rows, count, std::is_same_v<T, Pair> ? (seen + 1) / 2 : seen, b, s.size, c_rows, here);
  }
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
