// The micro-kernels of exact products alone: every shape of a tile, both layouts of A, runs of all lengths, and the
// longest sums, against int64.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "tensor/carries.h"
#include "tensor/isa.h"
#include "tensor/philox.h"
#include "tensor/quantized.h"
#include "tensor/scratch.h"
#include "tensor/tile.h"
#include "tests/support/amx_model.h"
#include "tests/tensor/exact_reference.h"

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

// Finishes the tile with and without earlier sums and a bias, also where powers of two have no exponents of normal
// numbers, and compares with its sums.
void expect_finished(Tile<Pair> tile, const std::vector<int64_t>& expected) {
  const auto columns = static_cast<size_t>(tile.cols), count = expected.size();
  std::vector<float> result(count), bias(columns);
  std::vector<int32_t> of_rows(static_cast<size_t>(tile.tile_rows)), of_columns(columns);
  std::array<float*, kMostTileRows> c_rows{};
  for (int i = 0; i < tile.rows; ++i) c_rows[static_cast<size_t>(i)] = result.data() + static_cast<size_t>(i) * columns;
  tile.c_rows = c_rows.data();
  tile.row_exponents = of_rows.data();
  tile.column_exponents = of_columns.data();
  tile.finish = true;
  for (const int least : {0, -118})  // the latter makes some factors subnormal
    for (const bool add : {false, true})
      for (const bool biased : {false, true}) {
        for (size_t i = 0; i < of_rows.size(); ++i) of_rows[i] = least + static_cast<int32_t>(i % 3);
        for (size_t j = 0; j < columns; ++j)
          of_columns[j] = 14 + static_cast<int32_t>(j % 5), bias[j] = std::ldexp(static_cast<float>(j), least);
        std::vector<double> earlier(count, -7.0);
        std::array<double*, kMostTileRows> sum_rows{};
        for (int i = 0; i < tile.rows; ++i)
          sum_rows[static_cast<size_t>(i)] = earlier.data() + static_cast<size_t>(i) * columns;
        tile.add = add;
        tile.sum_rows = add ? sum_rows.data() : nullptr;
        tile.bias = biased ? bias.data() : nullptr;
        multiply_tile(tile);
        for (size_t at = 0; at < count; ++at) {
          const size_t i = at / columns, j = at % columns;
          const float here = finished_sum(expected[at] - (add ? 7 : 0), int64_t{of_rows[i]} + of_columns[j]);
          EXPECT_EQ(result[at], biased ? here + bias[j] : here) << i << " " << j << " " << least << add << biased;
        }
      }
}

// Multiplies with the current kernel and compares, for a tile of this many rows and columns over `runs`, whose places
// are below `length`. Returns the plan of its carries, which is empty without one.
enum class Planned : uint8_t { no, for_any_rows, for_these_rows };
std::vector<int16_t> expect_exact(int rows, int columns, bool in_place, Planned planned, const Runs& runs,
                                  int64_t length, const std::function<Pair(uint64_t, int64_t)>& pair_at) {
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
  std::fill_n(b.data() + length * b_step, extent.cols(), Pair{});  // tiles read past the end, and plans depend on it
  std::array<const Pair*, kMostTileRows> a_rows{};
  std::array<double*, kMostTileRows> sum_rows{};
  std::vector<double> sums(static_cast<size_t>(rows * columns), 3.0);
  for (int i = 0; i < extent.rows; ++i) a_rows[static_cast<size_t>(i)] = a.data() + i * length;
  for (int i = 0; i < rows; ++i) sum_rows[static_cast<size_t>(i)] = sums.data() + i * columns;
  Tile<Pair> tile{.runs = runs.data(),
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
                  .finish = false};
  CarryPlan plan;
  RowSquares squares;
  if (planned != Planned::no) plan.measure(tile, planned == Planned::for_these_rows ? kSquaredTiles : 1);
  plan.plan_for(squares, [&] { squares.raise(tile); });
  tile.carries = plan.carries();
  multiply_tile(tile);
  std::vector<int64_t> expected(sums.size(), 0);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      int64_t& sum = expected[static_cast<size_t>(i * columns + j)];
      for (const Run& run : runs)
        for (int64_t k = 0; k < run.length; ++k) {
          const Pair x = a[i * length + run.a + k], y = b[run.b_first + (run.b_row + k) * b_step + j];
          sum += int64_t{x.first} * y.first + int64_t{x.second} * y.second;
        }
      EXPECT_EQ(sums[static_cast<size_t>(i * columns + j)], static_cast<double>(sum + 3)) << i << " " << j;
    }
  expect_finished(tile, expected);
  std::vector<int16_t> carries;
  for (const int16_t* at = tile.carries; at && (carries.empty() || carries.back() != INT16_MAX); ++at)
    carries.push_back(*at);
  return carries;
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
              for (const Planned planned : {Planned::no, Planned::for_any_rows, Planned::for_these_rows})
                expect_exact(rows, columns, in_place, planned, runs, 170, random_pair);
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
        expect_exact(2, 2, true, Planned::no, {{.length = kMostBytePairs}}, kMostBytePairs,
                     [other](uint64_t seed, int64_t) {
                       return seed == 1 ? Pair{8191, 8191} : Pair{other, other};
                     });
      }
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

// Each column of B has numbers up to another magnitude, and A the largest ones of the same sign, so that sums come as
// near to their limits as the plan allows.
TEST(PairTiles, PlannedSumsDoNotOverflow) {
  constexpr int64_t kLength = kMostPlannedPairs;
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const PairUnits units : kAllPairUnits) {
      use_units(units);
      const int columns = tile_extent(Pair{}, 64).cols();
      for (const int16_t sign : {1, -1}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", name_of(isa), name_of(units), sign));
        const auto pair_at = [&](uint64_t seed, int64_t at) {
          if (seed == 1) return Pair{static_cast<int16_t>(8191 * sign), static_cast<int16_t>(8191 * sign)};
          const int64_t column = at % (columns + 3), most = 8191 >> (column % 14);
          const Pair pair = random_pair(seed, at);
          return Pair{static_cast<int16_t>(std::abs(pair.first) % (most + 1)), static_cast<int16_t>(most)};
        };
        for (const Planned planned : {Planned::for_any_rows, Planned::for_these_rows}) {
          expect_exact(3, columns, false, planned, {{.length = kLength}}, kLength, pair_at);
          expect_exact(3, columns, true, planned, {{.length = 100}, {.a = 100, .b_row = 110, .length = 300}}, kLength,
                       pair_at);
        }
      }
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

// The inequality behind plans is an equation where a row of A is a multiple of a column of B, so these sums come as
// near to their limits as the plan allows.
TEST(PairTiles, PlannedSumsOfProportionalNumbersDoNotOverflow) {
  constexpr int64_t kLength = 1500;
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const PairUnits units : kAllPairUnits) {
      use_units(units);
      const TileExtent extent = tile_extent(Pair{}, 64);
      for (const int64_t period : {7, 64, 500}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", name_of(isa), name_of(units), period));
        const auto pair_at = [&](uint64_t seed, int64_t at) {
          const int64_t k = seed == 1 ? at % kLength : at / (extent.cols() + 3);
          const auto most = static_cast<int16_t>(8191 >> (k / period % 5));
          return Pair{most, static_cast<int16_t>(-most)};
        };
        for (const bool in_place : {false, true})
          expect_exact(extent.rows, extent.cols(), in_place, Planned::for_these_rows,
                       {{.length = 33}, {.a = 40, .b_row = 40, .length = 1400}}, kLength, pair_at);
      }
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

// Sums stay below 2^31 - 2^16 for 32 numbers of 8191 and any A, and for 64 of 4096; if the squares of A are known, also
// for 128 products of 8191 and 2048.
TEST(PairTiles, CarriesFollowTheNumbersOfBothFactors) {
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const PairUnits units : kAllPairUnits) {
      if (units == PairUnits::tiles) continue;  // has no plans
      use_units(units);
      SCOPED_TRACE(fmt::format("{}, {}", name_of(isa), name_of(units)));
      const auto plan_for = [](Planned planned, int16_t of_a, int16_t of_b, int64_t from = 0) {
        return expect_exact(2, 2, true, planned, {{.length = 200}}, 200, [=](uint64_t seed, int64_t at) {
          if (seed == 1) return Pair{of_a, 0};
          return at / 5 < from ? Pair{1, 0} : Pair{of_b, 0};
        });
      };
      using Plan = std::vector<int16_t>;
      for (const int16_t of_a : {1, 8191}) {
        EXPECT_EQ(plan_for(Planned::for_any_rows, of_a, 1), (Plan{INT16_MAX}));
        EXPECT_EQ(plan_for(Planned::for_any_rows, of_a, 4096), (Plan{64, 64, 64, INT16_MAX}));
        EXPECT_EQ(plan_for(Planned::for_any_rows, of_a, -8191), (Plan{32, 32, 32, 32, 32, 32, INT16_MAX}));
        EXPECT_EQ(plan_for(Planned::for_any_rows, of_a, 8191, 96), (Plan{112, 32, 32, INT16_MAX}));
      }
      EXPECT_EQ(plan_for(Planned::for_these_rows, 1, 8191), (Plan{INT16_MAX}));
      EXPECT_EQ(plan_for(Planned::for_these_rows, -8191, 2048), (Plan{128, INT16_MAX}));
      EXPECT_EQ(plan_for(Planned::for_these_rows, 2048, -8191), (Plan{128, INT16_MAX}));
      EXPECT_EQ(plan_for(Planned::for_these_rows, 1024, 8191), (Plan{INT16_MAX}));
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

}  // namespace
}  // namespace elinvar::test
