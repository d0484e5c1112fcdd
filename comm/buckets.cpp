#include "comm/buckets.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {

Buckets::Buckets(std::vector<Shape> shapes, int64_t most_elements, bool whole) : shapes_(std::move(shapes)) {
  cut_tensors(most_elements, whole, {});
}

Buckets::Buckets(std::vector<Shape> shapes, int64_t most_elements, const BucketCuts& cuts)
    : shapes_(std::move(shapes)) {
  check(cuts.multiple >= 1 && most_elements % cuts.multiple == 0,
        "[buckets] {} elements a bucket are no multiple of {}", most_elements, cuts.multiple);
  cut_tensors(most_elements, /*whole=*/false, cuts);
}

void Buckets::cut_tensors(int64_t most_elements, bool whole, const BucketCuts& cuts) {
  check(most_elements >= 1, "[buckets] at least one element a bucket expected, got {}", most_elements);
  int64_t room = 0;
  for (size_t t = 0; t < shapes_.size(); ++t) {
    const int64_t numel = shapes_[t].numel();
    if ((whole && room < numel) || (cuts.apart > 0 && t == cuts.apart)) room = 0;
    if (numel > room && room < cuts.multiple) room = 0;  // what is left has no room for a part of it
    const int first = count() - (room > 0);
    for (int64_t begin = 0; begin < numel;) {
      if (room == 0) {
        buckets_.emplace_back();
        room = whole ? std::max(most_elements, numel) : most_elements;
      }
      const int64_t end = numel - begin <= room ? numel : begin + room / cuts.multiple * cuts.multiple;
      buckets_.back().push_back({static_cast<int>(t), begin, end});
      room = end == numel ? room - (end - begin) : 0;
      begin = end;
    }
    of_.emplace_back(first, numel > 0 ? count() : first);
  }
}

int Buckets::below(int tensor) const {
  int buckets = 0;
  while (buckets < count() && slices(buckets).back().tensor < tensor) ++buckets;
  return buckets;
}

std::vector<Tensor> Buckets::cut(int bucket, const std::vector<Tensor>& values) const {
  check(values.size() == shapes_.size(), "[buckets] {} tensors expected, got {}", shapes_.size(), values.size());
  std::vector<Tensor> cut;
  for (const Slice& s : slices(bucket)) {
    const Tensor& value = values[static_cast<size_t>(s.tensor)];
    check(value.shape() == shapes_[static_cast<size_t>(s.tensor)] && value.contiguous(),
          "[buckets] tensor {}: contiguous of shape {} expected, got {}", s.tensor,
          to_string(shapes_[static_cast<size_t>(s.tensor)]), to_string(value.shape()));
    cut.push_back(view_of(value, s));
  }
  return cut;
}

bool Buckets::fits(int bucket, std::span<const Blob> blobs) const {
  const std::span<const Slice> wanted = slices(bucket);
  return std::equal(blobs.begin(), blobs.end(), wanted.begin(), wanted.end(), [](const Blob& b, const Slice& s) {
    return b.bytes == static_cast<size_t>(s.end - s.begin) * sizeof(float);
  });
}

Blob blob_of(const Tensor& tensor) {
  check(tensor.contiguous(), "[blob] contiguous elements expected");
  auto here = std::make_shared<Tensor>(tensor.to(Device{}));
  const auto* elements = static_cast<const std::byte*>(std::as_const(*here).raw());
  const auto bytes = static_cast<size_t>(here->bytes());
  return {std::move(here), elements, bytes};
}

Tensor tensor_of(const Blob& blob) {
  return Tensor::over(blob.owner, blob.data, {static_cast<int64_t>(blob.bytes / sizeof(float))}, DType::f32);
}

}  // namespace elinvar
