#pragma once
// Cuts the tensors of a rank gradient into buckets of bounded size, in their order, so that one bucket can be reduced
// while the next still travels. Small tensors share a bucket; a large one spans several. Tensors that different workers
// contribute (elastic/protocol/model_replica.h) are in different groups, and share none.
//
// Buckets that are also the unit in which the optimizer's state is sharded (elastic/ARRANGEMENT.md) cut tensors only at
// multiples of a digest chunk, so that digests and sums of squares of a bucket are parts of those of whole tensors.
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/blob.h"
#include "tensor/slice.h"
#include "tensor/tensor.h"

namespace elinvar {

// How tensors are cut.
struct BucketCuts {
  int64_t multiple = 1;                   // tensors are cut at multiples of this many elements
  std::map<int, int64_t> multiples = {};  // .. these tensors at multiples of their own
  bool whole = false;                     // none is cut, and one that is too large gets a bucket of its own
  // The group of each tensor; empty: there is one. Buckets have tensors of one group, and come in the order of groups.
  std::vector<int> groups = {};
};

class Buckets {
 public:
  Buckets() = default;
  // For float32 tensors of these shapes, with at most `most_elements` (at least 1) elements per bucket. A bucket may
  // have more if it has one slice: of at most the multiple at which its tensor is cut, or a whole tensor.
  Buckets(std::vector<Shape> shapes, int64_t most_elements, const BucketCuts& cuts = {});

  int count() const { return static_cast<int>(buckets_.size()); }
  const std::vector<Shape>& shapes() const { return shapes_; }
  std::span<const Slice> slices(int bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
  // The buckets [first, last) that a tensor is in.
  std::pair<int, int> of(int tensor) const { return of_[static_cast<size_t>(tensor)]; }
  // The number of buckets that contain only tensors below this index; they must be the first ones.
  int below(int tensor) const;

  // Returns the slices of a bucket as one-dimensional tensors that share storage with `values`, which must be
  // contiguous and have these shapes.
  std::vector<Tensor> cut(int bucket, const std::vector<Tensor>& values) const;
  // Whether the blobs have the sizes of the bucket's slices, so that they can be read as these.
  bool fits(int bucket, std::span<const Blob> blobs) const;

 private:
  void cut_tensors(int64_t most_elements, const BucketCuts& cuts);

  std::vector<Shape> shapes_;
  std::vector<std::vector<Slice>> buckets_;
  std::vector<std::pair<int, int>> of_;  // each tensor
};

// The elements of a contiguous tensor as a blob, and a blob of float32 as a one-dimensional tensor. Only tensors on a
// GPU are copied.
Blob blob_of(const Tensor& tensor);
Tensor tensor_of(const Blob& blob);

}  // namespace elinvar
