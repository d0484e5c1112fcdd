#pragma once
// Plans for the carries of exact sums (tensor/pair_tile.h), of which most need far fewer than sums of the largest
// numbers. A plan uses one of two bounds on a sum of products:
//   kMostQuantized sum |b|         for any A
//   sqrt(sum a^2 sum b^2)          for rows of A whose squares are known (Cauchy and Schwarz)
// The second is usually several times smaller, but takes a pass over A, so it is used where many tiles of B share that.
//
// Terms are seen as steps of kPairsPerCarry pairs and parts of kPairsPerPart pairs, in the order of a tile's runs. A
// plan takes the largest sum of all columns in each step, and of all rows in each part.
#include <cstdint>

#include "tensor/tile.h"

namespace elinvar {

inline constexpr int64_t kPlannedTiles = 4;  // so many tiles take longer than the plan that they share
inline constexpr int64_t kSquaredTiles = 3;  // so many tiles of B repay the squares of the rows that they share
inline constexpr int64_t kMostPlannedPairs = 2 * chunk_length<Pair>(), kPairsPerPart = 128;
static_assert(kPairsPerPart % kPairsPerCarry == 0 && kMostPlannedPairs % kPairsPerPart == 0);

// For each part of the terms of A, the largest sum of squares of any row.
struct RowSquares {
  bool known = false;
  float parts[kMostPlannedPairs / kPairsPerPart] = {};

  // Takes the rows of this tile into account. Only CarryPlan::plan_for() asks for that.
  void raise(const Tile<Pair>& tile);
};

// The plan of tiles that share B.
class CarryPlan {
 public:
  // Measures B and plans for any A, for tiles that have the B, the runs and the columns of this one. Rows of A meet
  // `tiles_of_b` tiles of B. It takes as long as about a third of a row of a tile.
  void measure(const Tile<Pair>& tile, int64_t tiles_of_b = 1);

  // Plans for an A whose rows have at most these squares, if that may save carries. It calls raise() if the squares are
  // not known yet, which must raise them to those of all rows.
  template <class F>
  void plan_for(RowSquares& rows, F&& raise) {
    if (!needs_rows_) return;
    if (!rows.known) raise();
    rows.known = true;
    plan(rows);
  }

  // The numbers of pairs after which sums are carried, one after the other, for Tile::carries; null where the
  // instructions in use need no plan, or the terms are too few or too many for one.
  const int16_t* carries() const { return pairs_ > 0 ? carries_ : nullptr; }

 private:
  void plan(const RowSquares& rows);
  // Places carries before the steps with which a sum might overflow.
  template <class Bound>
  void place(const Bound& empty);

  int64_t pairs_ = 0;
  bool needs_rows_ = false;
  int32_t steps_[kMostPlannedPairs / kPairsPerCarry];  // the largest sums of columns, of magnitudes or squares
  int16_t carries_[kMostPlannedPairs / kPairsPerCarry + 1];
};

}  // namespace elinvar
