#pragma once
// Plans for the carries of exact sums (tensor/pair_tile.h), of which most need far fewer than sums of the largest
// numbers. Two bounds on a sum of products say when an int32 sum may overflow, by the numbers of tiles that share B:
//   kMostQuantized sum |b|               for any A
//   sqrt(sum a^2 sum b^2)                for rows of A whose squares are known (Cauchy and Schwarz)
// The second is usually several times as small, but takes a pass over A.
//
// Terms are seen as steps of kPairsPerCarry pairs and parts of kPairsPerPart pairs, in the order of a tile's runs. A
// plan takes the largest sum of all columns in each step, and of all rows in each part.
#include <cstdint>

#include "tensor/tile.h"

namespace elinvar {

inline constexpr int64_t kPlannedTiles = 4;  // so many tiles take longer than the plan that they share
inline constexpr int64_t kSquaredTiles = 3;  // so many tiles of B repay the squares of A that they share
inline constexpr int64_t kMostPlannedPairs = 2 * chunk_length<Pair>(), kPairsPerPart = 128;
static_assert(kPairsPerPart % kPairsPerCarry == 0 && kMostPlannedPairs % kPairsPerPart == 0);

// Sums of squares of the terms of A, the largest of the rows of tiles.
struct RowSquares {
  bool known = false;
  float parts[kMostPlannedPairs / kPairsPerPart] = {};

  // Raises them to those of this tile, whose plan needs them.
  void raise(const Tile<Pair>& tile);
};

// The plan of tiles that share B. It takes as long as about a third of a row of a tile.
class CarryPlan {
 public:
  // Plans for tiles with the B, the runs and the columns of this one, and any A.
  void set(const Tile<Pair>& tile);

  // Plans for such tiles with the largest A, and keeps the squares of B for set_rows().
  void set_columns(const Tile<Pair>& tile);

  // After set_columns(), whether plans for other A may have fewer carries, and the plan for an A whose rows have at
  // most these squares. If they are not known, raise() must raise them to those of all rows.
  bool needs_rows() const { return needs_rows_; }
  template <class F>
  void set_rows(RowSquares& rows, F&& raise) {
    if (!rows.known) raise();
    rows.known = true;
    plan(rows);
  }

  // set(), or the plan with squares if so many tiles of B share A that it takes less time.
  template <class F>
  void set(const Tile<Pair>& tile, int64_t tiles_of_b, RowSquares& rows, F&& raise) {
    if (tiles_of_b < kSquaredTiles) return set(tile);
    set_columns(tile);
    if (needs_rows()) set_rows(rows, raise);
  }

  // The numbers of pairs after which sums are carried, one after the other, for Tile::carries; null where the
  // instructions in use need no plan, or the terms are too few or too many for one.
  const int16_t* carries() const { return pairs_ > 0 ? carries_ : nullptr; }

 private:
  bool measure(const Tile<Pair>& tile, bool squares);
  void plan(const RowSquares& rows);

  int64_t pairs_ = 0;
  bool needs_rows_ = false;
  int32_t steps_[kMostPlannedPairs / kPairsPerCarry];  // the largest sums of columns, of magnitudes or squares
  int16_t carries_[kMostPlannedPairs / kPairsPerCarry + 1];
};

}  // namespace elinvar
