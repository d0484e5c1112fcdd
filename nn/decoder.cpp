#include "nn/decoder.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {

Decoder::Decoder(const Network& network, int64_t context, bool cached)
    : network_(network), context_(context), cached_(cached), cache_(context) {
  check(context >= 1, "[decoder] a context of at least one token expected, got {}", context);
}

int64_t Decoder::first_seen(int64_t tokens, int64_t context) {
  if (tokens <= context) return 0;
  const int64_t half = std::max<int64_t>(1, context / 2);
  return (tokens - context + half - 1) / half * half;
}

Tensor Decoder::logits(std::span<const int32_t> tokens) {
  check(!tokens.empty(), "[decoder] at least one token expected");
  const std::span<const int32_t> seen =
      tokens.subspan(static_cast<size_t>(first_seen(static_cast<int64_t>(tokens.size()), context_)));
  const bool cached = cached_ && network_.continues();
  size_t known = 0;  // cached tokens, without the last token, whose logits are needed
  if (cached) {
    if (cache_.precision() != product_precision()) held_.clear();
    const size_t most = std::min(held_.size(), seen.size() - 1);
    known = static_cast<size_t>(
        std::mismatch(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(most), held_.begin()).first -
        seen.begin());
    cache_.keep(static_cast<int64_t>(known));
    held_.resize(known);  // forward() may throw
  }
  const std::span<const int32_t> fresh = seen.subspan(known);
  const auto count = static_cast<int64_t>(fresh.size());
  const NoGrad constant;
  Context forward;
  if (cached) forward.cache = &cache_;
  const Tensor logits = network_.forward(Tensor::from(fresh, {1, count}), forward).value();
  if (cached) held_.assign(seen.begin(), seen.end());
  return logits.select(0, 0).select(0, logits.dim(1) - 1).to(Device{}).to_contiguous();
}

}  // namespace elinvar
