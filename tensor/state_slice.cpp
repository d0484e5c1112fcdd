#include "tensor/state_slice.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

std::string slice_name(const std::string& tensor, int64_t begin, int64_t end) {
  return fmt::format("{}[{}:{}]", tensor, begin, end);
}

Shape whole_shape(std::span<const int64_t> extents) {
  if (extents.size() > static_cast<size_t>(Shape::kMaxDims))
    fail("[state] a shape has {} dimensions, more than {}", extents.size(), Shape::kMaxDims);
  int64_t bytes = sizeof(float);  // counts empty extents as 1, so that strides cannot overflow either
  for (const int64_t extent : extents)
    if (extent < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(1, extent), &bytes))
      fail("[state] a shape has an extent of {}", extent);
  return Shape(extents);
}

void check_range(const SliceRange& slice) {
  const auto& [tensor, whole, begin, end] = slice;
  const int64_t numel = whole.numel();
  if (begin < 0 || begin >= end || end > numel || begin % kChunkElements != 0 ||
      (end % kChunkElements != 0 && end != numel))
    fail("[state] {} is no slice of a tensor of shape {}: slices lie within it and cut no chunk of {} elements",
         slice_name(tensor, begin, end), to_string(whole), kChunkElements);
}

SliceRange range_of(const StateSlice& slice) {
  const SliceRange range{slice.tensor, slice.whole, slice.begin, slice.end};
  check_range(range);
  const Tensor& values = slice.values;
  if (values.dtype() != DType::f32 || values.shape() != Shape{slice.end - slice.begin})
    fail("[state] {} needs one dimension of {} values of float32, got {} of shape {}",
         slice_name(slice.tensor, slice.begin, slice.end), slice.end - slice.begin, name_of(values.dtype()),
         to_string(values.shape()));
  return range;
}

SliceRange range_of(const SliceDigests& slice) {
  const int64_t numel = slice.whole.numel(), chunks = static_cast<int64_t>(slice.chunks.size());
  if (slice.begin < 0 || slice.begin >= numel || chunks > (numel - slice.begin - 1) / kChunkElements + 1)
    fail("[state] a slice of {} chunks from element {} of '{}' exceeds its shape {}", chunks, slice.begin, slice.tensor,
         to_string(slice.whole));
  const SliceRange range{slice.tensor, slice.whole, slice.begin,
                         std::min(numel, slice.begin + chunks * kChunkElements)};
  check_range(range);
  return range;
}

void check_complete(std::span<const SliceRange> slices) {
  check(!slices.empty(), "[state] a tensor without slices");
  const auto& [tensor, whole, first, last] = slices.front();
  int64_t at = 0;
  const auto expect = [&](int64_t begin) {
    if (begin > at) fail("[state] {} is missing", slice_name(tensor, at, begin));
  };
  for (const SliceRange& slice : slices) {
    if (slice.whole != whole)
      fail("[state] {} belongs to a tensor of shape {}, {} to one of shape {}", slice_name(tensor, first, last),
           to_string(whole), slice_name(tensor, slice.begin, slice.end), to_string(slice.whole));
    expect(slice.begin);
    if (slice.begin < at) fail("[state] {} is there twice", slice_name(tensor, slice.begin, std::min(at, slice.end)));
    at = slice.end;
  }
  expect(whole.numel());
}

std::vector<SliceDigests> slice_digests(std::span<const StateSlice> slices) {
  std::vector<Tensor> values;
  std::vector<SliceDigests> digests;
  for (const StateSlice& slice : slices) {
    (void)range_of(slice);
    values.push_back(slice.values);
    digests.push_back({.tensor = slice.tensor, .whole = slice.whole, .begin = slice.begin});
  }
  std::vector<TensorDigest> trees = digest_tree(values);
  for (size_t i = 0; i < trees.size(); ++i) digests[i].chunks = std::move(trees[i].chunks);
  return digests;
}

}  // namespace elinvar
