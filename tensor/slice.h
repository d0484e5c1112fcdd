#pragma once
// Slices of the tensors of a list: what a process holds of values that are divided among processes. Slices that begin
// and end at segments of NUMERICS.md, rule 19, have the partial sums that the whole tensors have there.
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/fields.h"
#include "tensor/tensor.h"

namespace elinvar {

// Elements [begin, end) of one tensor of a list, in logical order.
struct Slice {
  int tensor = 0;
  int64_t begin = 0, end = 0;

  int64_t numel() const { return end - begin; }
  bool operator==(const Slice&) const = default;
  ELINVAR_FIELDS(tensor, begin, end)
};

// Returns a slice of `tensor`, which must be contiguous, as a one-dimensional tensor that shares its storage.
Tensor view_of(const Tensor& tensor, const Slice& slice);

// Throws UsageError unless the slices of tensors of these shapes are not empty, do not overlap, begin at a multiple of
// kRowSegment elements of their tensor, and end at one or at the tensor's end. They may be in any order.
void check_slices(std::span<const Slice> slices, std::span<const Shape> shapes);

// Numbers the segments of all tensors from 0, tensors in order, so that the partial sums of slices find their places.
class SegmentLayout {
 public:
  explicit SegmentLayout(std::span<const Shape> shapes);

  int64_t count() const { return first_.back(); }
  int64_t first(const Slice& slice) const;  // the number of its first segment
  static int64_t count(const Slice& slice);

  // Copies `sums`, equally many for each segment of the slices in order, to their places in `all`, which has as many
  // for each segment of all tensors.
  void place(std::span<const Slice> slices, std::span<const double> sums, std::span<double> all) const;

 private:
  std::vector<int64_t> first_;  // number of the first segment of each tensor, and the number of segments
};

}  // namespace elinvar
