#include "nn/attention_cache.h"

#include <algorithm>

#include "autograd/linear.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"

namespace elinvar {
namespace {

// Writes `tokens` (B, T, G, D) after the first `length` of `held`, and returns all of them.
Tensor appended(Tensor& held, const Tensor& tokens, int64_t length, int64_t capacity) {
  const Shape& shape = tokens.shape();
  if (!held.defined()) held = Tensor::empty({shape[0], capacity, shape[2], shape[3]}, tokens.dtype(), tokens.device());
  check(held.dim(0) == shape[0] && held.dim(2) == shape[2] && held.dim(3) == shape[3],
        "[attention cache] tokens of shape {} do not follow those of shape {}", to_string(shape),
        to_string(held.shape()));
  Tensor place = held.slice(1, length, length + shape[1]);
  copy(tokens, place);
  return held.slice(1, 0, length + shape[1]);
}

}  // namespace

void AttentionCache::keep(int64_t length) {
  check(length >= 0 && length <= length_, "[attention cache] it has {} tokens; {} cannot be kept", length_, length);
  length_ = length;
}

std::pair<Var, Var> AttentionCache::extend(int64_t slot, const Var& keys, const Var& values) {
  check(!keys.requires_grad() && !values.requires_grad(),
        "[attention cache] no gradient goes through a cache; use it inside NoGrad");
  check(length_ + keys.dim(1) <= capacity_, "[attention cache] {} tokens and {} more are beyond the {} that it holds",
        length_, keys.dim(1), capacity_);
  if (length_ == 0 && precision_ != product_precision()) {
    slots_.clear();  // with bfloat16, keys and values have another type
    precision_ = product_precision();
  }
  check(precision_ == product_precision(),
        "[attention cache] it has tokens of {} products, which {} ones cannot follow; keep(0) begins anew",
        name_of(precision_), name_of(product_precision()));
  const auto place = static_cast<size_t>(slot);
  if (place >= slots_.size()) slots_.resize(place + 1);
  Slot& held = slots_[place];
  return {appended(held.keys, keys.value(), length_, capacity_),
          appended(held.values, values.value(), length_, capacity_)};
}

Var AttentionCache::attend(int64_t slot, const Var& queries, const Var& keys, const Var& values) {
  check(!queries.requires_grad(), "[attention cache] no gradient goes through a cache; use it inside NoGrad");
  const auto [all_keys, all_values] = extend(slot, keys, values);
  return attention(queries, all_keys, all_values);
}

const std::vector<Var>& AttentionCache::once(int64_t place, const std::function<std::vector<Var>()>& make) {
  once_.resize(std::max(once_.size(), static_cast<size_t>(place) + 1));
  std::vector<Var>& kept = once_[static_cast<size_t>(place)];
  if (length_ == 0) kept = make();
  invariant(!kept.empty(), "the first tokens were seen with the same cache");
  return kept;
}

Var AttentionCache::attend(int64_t slot, const Var& qkv, int64_t heads) {
  const int64_t B = qkv.dim(0), T = qkv.dim(1), C = qkv.dim(2) / 3;
  check(!qkv.requires_grad(), "[attention cache] no gradient goes through a cache; use it inside NoGrad");
  const Tensor parts = qkv.value().reshape({B, T, 3, heads, C / heads});
  return reshape(attend(slot, parts.select(2, 0), parts.select(2, 1), parts.select(2, 2)), {B, T, C});
}

Var AttentionCache::advance(const Var& x) {
  const int64_t T = x.dim(1);
  length_ += T;
  return slice(x, 1, T - 1, T);
}

}  // namespace elinvar
