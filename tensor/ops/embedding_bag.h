#pragma once
// Sums and means of rows of a table that bags of ids name, as torch.nn.EmbeddingBag has them (NUMERICS.md, rule 33).
//
// A sample's row of indices has K bags side by side, of widths[0], .., widths[K-1] places. A place has an id, or -1 for
// none; ids may stand at any places of their bag, and repeatedly. The value of a bag is
//   sum   the sum of its ids' rows, in the order of their places; places without an id are left out
//   mean  the same divided by the number of its ids, rounded once more
// and zeros if it has no ids.
#include <vector>

#include "tensor/fields.h"
#include "tensor/tensor.h"

namespace elinvar {

inline constexpr int64_t kNoId = -1;

enum class BagMode { sum, mean };
constexpr BagMode last_of(BagMode) { return BagMode::mean; }

struct Bags {
  std::vector<int64_t> widths;  // each at least 1
  BagMode mode = BagMode::sum;
  ELINVAR_FIELDS(widths, mode)
  int64_t count() const { return static_cast<int64_t>(widths.size()); }
  int64_t places() const;  // the sum of the widths
};

// table (V, C) float32 or float64, index (.., places) int32 or int64 of ids in [0, V) or -1 -> (.., K, C)
Tensor embedding_bag(const Tensor& table, const Tensor& index, const Bags& bags);
// dy (.., K, C) -> (rows, C). Row v is the sum, by rule 16, of the gradients of the bags of all places that have v; the
// gradient of a mean is first divided by the number of the bag's ids.
Tensor embedding_bag_backward(const Tensor& dy, const Tensor& index, const Bags& bags, int64_t rows);

}  // namespace elinvar
