// The micro-kernels of exact products alone: every shape of a tile, both layouts of A, runs of all lengths, and the
// longest sums, against int64.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <functional>
#include <vector>

#include "tensor/isa.h"
#include "tensor/philox.h"
#include "tensor/quantized.h"
#include "tensor/scratch.h"
#include "tensor/tile.h"
#include "tests/support/amx_model.h"

namespace elinvar::test {
namespace {

using Runs = std::vector<Run>;  // Run is another thing in a test

Pair random_pair(uint64_t seed, int64_t i) {
  const Random4 random = philox(seed, static_cast<uint32_t>(i), 0, 0, 0);
  const auto number = [&](uint32_t bits) {
    return static_cast<int16_t>(static_cast<int32_t>(bits % (2 * kMostQuantized + 1)) - kMostQuantized);
  };
  return {number(random.v[0]), number(random.v[1])};
}

// Multiplies with the current kernel and compares, for a tile of this many rows and columns over `runs`, whose places
// are below `length`.
void expect_exact(int rows, int columns, bool in_place, const Runs& runs, int64_t length,
                  const std::function<Pair(uint64_t, int64_t)>& pair_at) {
  const TileExtent extent = tile_extent(Pair{}, columns);
  const int64_t b_step = columns + 3;
  Scratch<Pair> a(extent.rows * length), panel(length * extent.rows), b(length * b_step + extent.cols());
  for (int64_t k = 0; k < length; ++k) {
    for (int64_t i = 0; i < extent.rows; ++i) {
      a[i * length + k] = i < rows ? pair_at(1, i * length + k) : Pair{};
      panel[k * extent.rows + i] = a[i * length + k];
    }
    for (int64_t j = 0; j < b_step; ++j) b[k * b_step + j] = pair_at(2, k * b_step + j);
  }
  std::array<const Pair*, kMostTileRows> a_rows{};
  std::array<double*, kMostTileRows> sum_rows{};
  std::vector<double> sums(static_cast<size_t>(rows * columns), 3.0);
  for (int i = 0; i < extent.rows; ++i) a_rows[static_cast<size_t>(i)] = a.data() + i * length;
  for (int i = 0; i < rows; ++i) sum_rows[static_cast<size_t>(i)] = sums.data() + i * columns;
  multiply_tile(Tile<Pair>{.runs = runs.data(),
                           .run_count = std::ssize(runs),
                           .tile_rows = extent.rows,
                           .rows = rows,
                           .cols = columns,
                           .a_rows = in_place ? a_rows.data() : nullptr,
                           .panel = panel.data(),
                           .b = b.data(),
                           .b_step = b_step,
                           .sum_rows = sum_rows.data(),
                           .add = true,
                           .finish = false});
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      int64_t sum = 3;
      for (const Run& run : runs)
        for (int64_t k = 0; k < run.length; ++k) {
          const Pair x = a[i * length + run.a + k], y = b[run.b_first + (run.b_row + k) * b_step + j];
          sum += int64_t{x.first} * y.first + int64_t{x.second} * y.second;
        }
      ASSERT_EQ(sums[static_cast<size_t>(i * columns + j)], static_cast<double>(sum)) << i << " " << j;
    }
}

TEST(PairTiles, AreExact) {
  const std::vector<Runs> all_runs{{},
                                   {{.a = 0, .b_first = 0, .b_row = 0, .length = 1}},
                                   {{.a = 3, .b_first = 1, .b_row = 2, .length = 16}},
                                   {{.a = 1, .b_first = 2, .b_row = 0, .length = 17},
                                    {.a = 20, .b_first = 0, .b_row = 19, .length = 5},
                                    {.a = 25, .b_first = 1, .b_row = 60, .length = 32},
                                    {.a = 60, .b_first = 3, .b_row = 30, .length = 100}}};
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const PairUnits units : kAllPairUnits) {
      use_units(units);
      const TileExtent extent = tile_extent(Pair{}, 64);
      for (const int rows : {1, extent.rows / 2, extent.rows / 2 + 1, extent.rows})
        for (const int columns : {1, extent.lanes, extent.lanes + 1, extent.cols()})
          for (const bool in_place : {false, true})
            for (const auto& runs : all_runs) {
              SCOPED_TRACE(
                  fmt::format("{}, {}: {} x {}, {} runs", name_of(isa), name_of(units), rows, columns, runs.size()));
              expect_exact(rows, columns, in_place, runs, 170, random_pair);
            }
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

// 8191 and -8191 have the lower bytes 255 and 1, and the upper bytes 31 and -32.
TEST(PairTiles, LongSumsDoNotOverflow) {
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const PairUnits units : kAllPairUnits) {
      use_units(units);
      for (const int16_t other : {8191, -8191}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", name_of(isa), name_of(units), other));
        expect_exact(2, 2, true, {{.length = kMostBytePairs}}, kMostBytePairs, [other](uint64_t seed, int64_t) {
          return seed == 1 ? Pair{8191, 8191} : Pair{other, other};
        });
      }
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

}  // namespace
}  // namespace elinvar::test
