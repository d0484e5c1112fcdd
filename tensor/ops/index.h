#pragma once
// Functions for ops that take indices: a check, and the stable sort that turns a scatter into a gather (NUMERICS.md,
// rule 16).
#include <optional>

#include "tensor/fields.h"
#include "tensor/tensor.h"

namespace elinvar {

// Returns the indices (int32 or int64, any layout and device) as contiguous int64 on the CPU. Throws UsageError, naming
// the first one that is outside [0, limit) and not `ignored`, and its position.
Tensor checked_index(const char* op, const Tensor& index, int64_t limit, std::optional<int64_t> ignored = {});

// Consecutive rows of a table, or classes, of which others hold the rest: [first, first + count) of `whole`.
struct IndexShard {
  int64_t first = 0, count = 0, whole = 0;
  ELINVAR_FIELDS(first, count, whole)
};
// Returns shard s of `count` of n things (NUMERICS.md, rule 25).
constexpr IndexShard shard_of(int64_t n, int s, int count) {
  const int64_t first = n * s / count;
  return {first, n * (s + 1) / count - first, n};
}
// Checks the indices against `whole` as checked_index() does, and returns them relative to the shard; those outside it
// are `count`.
Tensor shard_index(const char* op, const Tensor& index, const IndexShard& shard);

// Positions sorted by target: those whose index is v, ascending, are order[start[v]] .. order[start[v + 1] - 1].
struct Occurrences {
  Tensor order;  // (n) int64
  Tensor start;  // (limit + 1) int64
  Occurrences to(Device device) const { return {order.to(device), start.to(device)}; }
};
Occurrences occurrences(const Tensor& index, int64_t limit);  // the indices must have been checked

}  // namespace elinvar
