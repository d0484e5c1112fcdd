#pragma once
// How the tensors of a leaf travel: cut into buckets of bounded size, in their order, so that a bucket can be reduced
// while the next is still on its way. Small tensors share a bucket, a large one has several.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "comm/packet.h"

namespace elinvar {

// Elements [begin, end) of one tensor, in logical order.
struct Slice {
  int tensor = 0;
  int64_t begin = 0, end = 0;
};

class Buckets {
 public:
  Buckets() = default;
  // float32 tensors of these shapes; a bucket holds at most `most_elements` of them (at least 1). With `whole` no
  // tensor is cut: one that is larger has a bucket of its own.
  Buckets(std::vector<Shape> shapes, int64_t most_elements, bool whole = false);

  int count() const { return static_cast<int>(buckets_.size()); }
  const std::vector<Shape>& shapes() const { return shapes_; }
  std::span<const Slice> slices(int bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
  // The buckets [first, last) that a tensor is in.
  std::pair<int, int> of(int tensor) const { return of_[static_cast<size_t>(tensor)]; }

  // The slices of a bucket as tensors of one dimension that share storage with `values` (contiguous, of these shapes).
  std::vector<Tensor> cut(int bucket, const std::vector<Tensor>& values) const;
  // Whether blobs have as many bytes as the slices of the bucket; then they can be read as its slices.
  bool fits(int bucket, std::span<const Blob> blobs) const;

 private:
  std::vector<Shape> shapes_;
  std::vector<std::vector<Slice>> buckets_;
  std::vector<std::pair<int, int>> of_;  // each tensor
};

// The elements of a contiguous tensor as a blob, and a blob of float32 as a tensor of one dimension. Nothing is copied
// but what lies on a GPU.
Blob blob_of(const Tensor& tensor);
Tensor tensor_of(const Blob& blob);

}  // namespace elinvar
