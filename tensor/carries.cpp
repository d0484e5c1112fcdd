#include "tensor/carries.h"

#include <algorithm>
#include <limits>

#include "tensor/pair_kernel.h"
#include "tensor/quantized.h"

namespace elinvar {
namespace {

// Sums of products of any A with columns of B, of which `step` has magnitudes.
class MagnitudeBound {
 public:
  bool admits(int64_t, int32_t step) const { return sum_ + step <= kMostSum / kMostQuantized; }
  void add(int64_t, int32_t step) { sum_ += step; }

 private:
  int64_t sum_ = 0;
};

// Sums of products of rows with these squares and columns of B, of which `step` has squares. Within a part nothing says
// which steps of the rows have its squares, so any of them may.
class SquareBound {
 public:
  explicit SquareBound(const RowSquares& rows) : rows_(&rows) {}

  bool admits(int64_t at, int32_t step) const { return of_rows(at, steps_ + 1) * (of_columns_ + step) <= kMost; }
  void add(int64_t at, int32_t step) {
    of_columns_ += step;
    ++steps_;
    if ((at + kPairsPerCarry) % kPairsPerPart == 0) of_whole_parts_ = of_rows(at, steps_), steps_ = 0;
  }

 private:
  static constexpr double kRoundings = (kPairsPerPart + 2) * 0x1p-24;  // relative error of a part, a sum of its pairs
  static constexpr double kMost = double{kMostSum} * kMostSum * (1 - kRoundings);
  static constexpr double kMostOfStep = 2.0 * kPairsPerCarry * kMostQuantized * kMostQuantized;

  // The most that squares of a row add up to, with so many steps of the part at `at`.
  double of_rows(int64_t at, int64_t steps) const {
    return of_whole_parts_ +
           std::min<double>(rows_->parts[at / kPairsPerPart], static_cast<double>(steps) * kMostOfStep);
  }

  const RowSquares* rows_;
  double of_whole_parts_ = 0, of_columns_ = 0;
  int64_t steps_ = 0;  // of the current part
};

}  // namespace

void RowSquares::raise(const Tile<Pair>& tile) { pair_kernel().squares_of_rows(tile, parts); }

void CarryPlan::measure(const Tile<Pair>& tile, int64_t tiles_of_b) {
  const bool squares = tiles_of_b >= kSquaredTiles;
  const PairKernel& kernel = pair_kernel();
  const auto of_columns = squares ? kernel.squares_of_columns : kernel.magnitudes_of_columns;
  needs_rows_ = false;
  pairs_ = 0;
  for (int64_t r = 0; r < tile.run_count; ++r) pairs_ += tile.runs[r].length;
  if (of_columns == nullptr || pairs_ <= kPairsPerCarry || pairs_ > kMostPlannedPairs) {
    pairs_ = 0;
    return;
  }
  of_columns(tile, steps_);
  if (!squares) return place(MagnitudeBound());
  RowSquares any;
  std::fill(std::begin(any.parts), std::end(any.parts), std::numeric_limits<float>::infinity());
  plan(any);
  needs_rows_ = carries_[0] != INT16_MAX;
}

void CarryPlan::plan(const RowSquares& rows) { place(SquareBound(rows)); }

template <class Bound>
void CarryPlan::place(const Bound& empty) {
  Bound since = empty;  // of the steps since the last carry
  int64_t pairs = 0;
  int16_t* next = carries_;
  for (int64_t at = 0; at < pairs_; at += kPairsPerCarry) {
    const int32_t step = steps_[at / kPairsPerCarry];
    if (pairs > 0 && !since.admits(at, step)) {
      *next++ = static_cast<int16_t>(pairs);
      since = empty;
      pairs = 0;
    }
    since.add(at, step);
    pairs += std::min(kPairsPerCarry, pairs_ - at);
  }
  *next = INT16_MAX;
}

}  // namespace elinvar
