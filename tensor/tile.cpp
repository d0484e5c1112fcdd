#include "tensor/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include <type_traits>
#include <utility>

#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Accumulators: 32 vector registers hold 8 x 3 or 6 x 4, 16 hold 6 x 2, along with the vectors of B and one of A.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 8, kVectors = 3, kWideRows = 6, kWideVectors = 4;
#else
constexpr int kRows = 6, kVectors = 2, kWideRows = kRows, kWideVectors = kVectors;
#endif
static_assert(kRows <= kMostTileRows && kWideRows <= kMostTileRows);
static_assert(kWideVectors >= kVectors && kWideVectors * Vec<float>::kLanes <= kMostTileColumns);

// Calls f(0) .. f(N - 1) with constant arguments. A loop over accumulators that is not unrolled, or a body that is not
// inlined, puts them in memory.
#define ELINVAR_INLINE __attribute__((always_inline))
template <class F, int... I>
HWY_INLINE void unrolled(F&& f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>()), ...);
}
template <int N, class F>
HWY_INLINE void unrolled(F&& f) {
  unrolled(f, std::make_integer_sequence<int, N>());
}

// Writes row i of the tile from its accumulators; `last` columns of the last vector exist.
template <class T, int N>
HWY_INLINE void store_row(const Tile<T>& tile, int i, const Vec<T> (&acc)[N], int64_t last) {
  using V = Vec<T>;
  constexpr int64_t L = V::kLanes;
  const T* c = tile.c_rows[i] + tile.c_offset;
  T* to = (tile.total_rows ? tile.total_rows : tile.c_rows)[i] + tile.c_offset;
  unrolled<N>([&](auto v) ELINVAR_INLINE {
    const int64_t count = v + 1 < N ? L : last;
    V sum = (tile.add ? V::load(c + v * L, count) : V::set(T{0})) + acc[v];
    if (tile.total_rows) sum = V::load(to + v * L, count) + sum;
    if (tile.bias) sum = sum + V::load(tile.bias + v * L, count);
    sum.store(to + v * L, count);
  });
}

// Writes all rows of a full tile whose result is the sum alone, without a branch.
template <class T, int R, int N>
HWY_INLINE void store_whole(const Tile<T>& tile, const Vec<T> (&acc)[R][N]) {
  using V = Vec<T>;
  unrolled<R>([&](auto i) ELINVAR_INLINE {
    T* to = tile.c_rows[i] + tile.c_offset;
    unrolled<N>([&](auto v) ELINVAR_INLINE { (V::set(T{0}) + acc[i][v]).store(to + v * V::kLanes); });
  });
}

// Computes R rows by N vectors, of which tile.rows exist. A is in a panel of kPanel rows, or in place if kPanel is 0.
template <class T, int R, int N, int kPanel>
void tile_product(const Tile<T>& given) {
  using V = Vec<T>;
  constexpr int64_t L = V::kLanes;
  const Tile<T> tile = given;  // a local copy, which stores to C cannot change
  V acc[R][N];
  const int64_t last = tile.cols - (N - 1) * L;  // columns of the last vector that exist
  unrolled<R>([&](auto i) ELINVAR_INLINE { unrolled<N>([&](auto v) ELINVAR_INLINE { acc[i][v] = V::set(T{0}); }); });
  if (tile.resume) {
    unrolled<R>([&](auto i) ELINVAR_INLINE {
      if (i >= tile.rows) return;
      unrolled<N>([&](auto v) ELINVAR_INLINE {
        acc[i][v] = V::load(tile.c_rows[i] + tile.c_offset + v * L, v + 1 < N ? L : last);
      });
    });
  }
  T* const* c_rows = tile.total_rows ? tile.total_rows : tile.c_rows;
  for (int i = 0; i < tile.rows; ++i)  // prefetches C while the registers fill
    for (int64_t v = 0; v < N; ++v) hwy::Prefetch(c_rows[i] + tile.c_offset + v * L);
  const T* next = tile.next;
  for (int64_t r = 0; r < tile.run_count; ++r) {
    const Run& run = tile.runs[r];
    const int64_t b_step = tile.b_step, length = run.length;
    const T* b = tile.b + run.b_first + run.b_row * b_step;
    const T* panel = nullptr;
    const T* rows[R];
    if constexpr (kPanel > 0) {
      panel = tile.panel + run.a * kPanel;
    } else {
      for (int i = 0; i < R; ++i) rows[i] = tile.a_rows[i] + run.a;
    }
    // The loop has nothing else: if another thread shares the core, each instruction counts.
    const auto multiply_run = [&](auto fetch_next) ELINVAR_INLINE {
#pragma GCC unroll 2
      for (int64_t k = 0; k < length; ++k) {
        if constexpr (fetch_next()) {
          hwy::Prefetch(next);
          next += tile.next_step;
        }
        V bv[N];
        for (int v = 0; v < N; ++v) bv[v] = V::load(b + v * L);
        for (int i = 0; i < R; ++i) {
          const V a = V::set(kPanel > 0 ? panel[k * kPanel + i] : rows[i][k]);
          for (int v = 0; v < N; ++v) acc[i][v] = fma(a, bv[v], acc[i][v]);
        }
        b += b_step;
      }
    };
    if (next) multiply_run(std::true_type());
    else multiply_run(std::false_type());
  }
  if (tile.rows == R && last == L && !tile.add && !tile.total_rows && !tile.bias)
    return store_whole<T, R, N>(tile, acc);
  unrolled<R>([&](auto i) ELINVAR_INLINE {
    if (i < tile.rows) store_row<T, N>(tile, i, acc[i], last);
  });
}

// float64 serves checks: it has one extent, and is computed with all rows, which saves most of the time to compile.
template <class T>
constexpr bool kEveryExtent = std::is_same_v<T, float>;

// A tile with few rows skips most of the others.
template <class T, int R, int N, int kPanel>
void with_rows(const Tile<T>& tile) {
  if constexpr (R > 2 && kEveryExtent<T>) {
    if (tile.rows <= R - 2) return with_rows<T, R - 2, N, kPanel>(tile);
  }
  tile_product<T, R, N, kPanel>(tile);
}

template <class T, int R, int N, int kPanel>
void with_vectors(const Tile<T>& tile) {
  if constexpr (N > 1) {
    if (tile.cols <= (N - 1) * Vec<T>::kLanes) return with_vectors<T, R, N - 1, kPanel>(tile);
  }
  with_rows<T, R, N, kPanel>(tile);
}

template <class T, int R, int N>
void with_extent(const Tile<T>& tile) {
  if (tile.a_rows) with_vectors<T, R, N, 0>(tile);
  else with_vectors<T, R, N, R>(tile);
}

template <class T>
void multiply(const Tile<T>& tile) {
  if constexpr (kEveryExtent<T>) {
    if (tile.tile_rows == kWideRows) return with_extent<T, kWideRows, kWideVectors>(tile);
  }
  with_extent<T, kRows, kVectors>(tile);
}

void multiply_f32(const Tile<float>& tile) { multiply(tile); }
void multiply_f64(const Tile<double>& tile) { multiply(tile); }

template <class T>
TileExtent extent(int64_t columns) {
  constexpr int L = Vec<T>::kLanes;
  const int64_t vectors = (columns + L - 1) / L;
  const bool wide =
      kEveryExtent<T> && (vectors + kWideVectors - 1) / kWideVectors < (vectors + kVectors - 1) / kVectors;
  return wide ? TileExtent{kWideRows, L, kWideVectors} : TileExtent{kRows, L, kVectors};
}
TileExtent extent_f32(int64_t columns) { return extent<float>(columns); }
TileExtent extent_f64(int64_t columns) { return extent<double>(columns); }

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(extent_f32);
HWY_EXPORT(extent_f64);

TileExtent tile_extent(float, int64_t columns) { return HWY_DYNAMIC_DISPATCH(extent_f32)(columns); }
TileExtent tile_extent(double, int64_t columns) { return HWY_DYNAMIC_DISPATCH(extent_f64)(columns); }
void multiply_tile(const Tile<float>& tile) { HWY_DYNAMIC_DISPATCH(multiply_f32)(tile); }
void multiply_tile(const Tile<double>& tile) { HWY_DYNAMIC_DISPATCH(multiply_f64)(tile); }

}  // namespace elinvar
#endif
