#include "elastic/protocol/passing_gradient.h"

#include "tensor/base/check.h"

namespace elinvar {

PassingGradient::PassingGradient(int vrank, int64_t count, const Buckets& buckets)
    : vrank_(vrank), count_(count), buckets_(&buckets), left_(buckets.count()), values_(buckets.shapes().size()) {
  for (int b = 0; b < buckets.count(); ++b) missing_.push_back(static_cast<int>(buckets.slices(b).size()));
  for (size_t t = 0; t < values_.size(); ++t) {
    const auto [first, last] = buckets.of(static_cast<int>(t));
    wanted_.push_back(last - first);
  }
}

std::vector<std::pair<int, std::vector<Tensor>>> PassingGradient::put(int tensor, Tensor value) {
  const auto t = static_cast<size_t>(tensor);
  invariant(t < values_.size() && !values_[t].defined(), "a tensor of a rank gradient is put once");
  values_[t] = std::move(value);
  std::vector<std::pair<int, std::vector<Tensor>>> whole;
  const auto [first, last] = buckets_->of(tensor);
  for (int b = first; b < last; ++b) {
    if (--missing_[static_cast<size_t>(b)] > 0) continue;
    whole.emplace_back(b, buckets_->cut(b, values_));
    release(b);
  }
  return whole;
}

void PassingGradient::release(int bucket) {
  --left_;
  for (const Slice& slice : buckets_->slices(bucket)) {
    const auto t = static_cast<size_t>(slice.tensor);
    if (--wanted_[t] == 0) values_[t] = Tensor();
  }
}

}  // namespace elinvar
