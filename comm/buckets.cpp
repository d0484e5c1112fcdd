#include "comm/buckets.h"

#include <algorithm>
#include <numeric>

#include "tensor/base/check.h"

namespace elinvar {

Buckets::Buckets(std::vector<Shape> shapes, int64_t most_elements, const BucketCuts& cuts)
    : shapes_(std::move(shapes)) {
  check(cuts.multiple >= 1, "[buckets] cuts at multiples of {}", cuts.multiple);
  for (const auto& [tensor, multiple] : cuts.multiples)
    check(multiple >= 1, "[buckets] cuts of tensor {} at multiples of {}", tensor, multiple);
  check(cuts.groups.empty() || cuts.groups.size() == shapes_.size(), "[buckets] groups of {} tensors expected, got {}",
        shapes_.size(), cuts.groups.size());
  cut_tensors(most_elements, cuts);
}

void Buckets::cut_tensors(int64_t most_elements, const BucketCuts& cuts) {
  check(most_elements >= 1, "[buckets] at least one element a bucket expected, got {}", most_elements);
  const auto group_of = [&](size_t t) { return cuts.groups.empty() ? 0 : cuts.groups[t]; };
  std::vector<size_t> order(shapes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return group_of(a) < group_of(b); });
  of_.resize(shapes_.size());
  int64_t room = 0;
  int group = order.empty() ? 0 : group_of(order[0]);
  for (const size_t t : order) {
    const int64_t numel = shapes_[t].numel();
    const auto own = cuts.multiples.find(static_cast<int>(t));
    const int64_t multiple = own == cuts.multiples.end() ? cuts.multiple : own->second;
    if ((cuts.whole && room < numel) || group_of(t) != group) room = 0;
    group = group_of(t);
    int first = count();
    for (int64_t begin = 0; begin < numel;) {
      const bool fresh = room == 0;
      if (fresh) {
        buckets_.emplace_back();
        room = cuts.whole ? std::max(most_elements, numel) : most_elements;
      }
      int64_t length = numel - begin;
      if (length > room) length = std::min(length, std::max<int64_t>(room / multiple, fresh) * multiple);
      room = std::max<int64_t>(room - length, 0);
      if (begin + length < numel) room = 0;
      if (length == 0) continue;
      if (begin == 0) first = count() - 1;
      buckets_.back().push_back({static_cast<int>(t), begin, begin + length});
      begin += length;
    }
    of_[t] = {first, numel > 0 ? count() : first};
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
