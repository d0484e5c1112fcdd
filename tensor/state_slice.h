#pragma once
// Slices of the float32 tensors of a state, which several workers hold together: each worker holds elements
// [begin, end) in logical (row-major) order. Slices begin and end where chunks of digests do (tensor/digest_tree.h) or
// at the tensor's end, so the digests of slices make up the digest of the tensor.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/digest_tree.h"
#include "tensor/fields.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace elinvar {

inline constexpr int64_t kChunkElements = kDigestChunkBytes / static_cast<int64_t>(sizeof(float));

struct SliceRange {
  std::string tensor;
  Shape whole;  // the tensor's shape
  int64_t begin = 0, end = 0;
};

struct StateSlice {
  std::string tensor;
  Shape whole;
  int64_t begin = 0, end = 0;
  Tensor values;  // (end - begin), float32
};

// The digests of a slice's chunks. The slice ends after the last chunk.
struct SliceDigests {
  std::string tensor = {};
  Shape whole = {};
  int64_t begin = 0;
  std::vector<Digest> chunks = {};

  ELINVAR_FIELDS(tensor, whole, begin, chunks)
};

std::string slice_name(const std::string& tensor, int64_t begin, int64_t end);  // "optimizer.w.m[262144:524288]"

// The following functions throw Failure.

// Returns the shape of a float32 tensor with these extents, which come from a file or a message.
Shape whole_shape(std::span<const int64_t> extents);
// Both require that the slice lies within its tensor, is not empty, and cuts no chunk.
SliceRange range_of(const StateSlice& slice);  // also requires values of the slice's size
SliceRange range_of(const SliceDigests& slice);
void check_range(const SliceRange& slice);
// Requires that the slices of one tensor, at least one, in the order of their first elements, hold each element of the
// tensor exactly once.
void check_complete(std::span<const SliceRange> slices);

// Digests slices on their own device.
std::vector<SliceDigests> slice_digests(std::span<const StateSlice> slices);

}  // namespace elinvar
