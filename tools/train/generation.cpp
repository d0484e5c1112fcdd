#include "tools/train/generation.h"

#include <algorithm>
#include <numeric>

#include "tensor/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/softmax.h"

namespace elinvar {
namespace {

// The token whose share of the distribution holds `u` in [0, 1): softmax(logits / temperature) over the top_k
// likeliest, added up in binary64 in the order of token numbers. At equal logits the lower number is the likelier.
int32_t draw(const Tensor& logits, const GenerationOptions& options, float u) {
  const int64_t n = logits.numel();
  const std::span<const float> z = logits.span<float>();
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)]; });
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0) order.resize(static_cast<size_t>(std::min(options.top_k, n)));
  std::sort(order.begin(), order.end());

  Tensor scaled = logits.clone();
  scale_into(scaled, 1.0 / options.temperature);
  const Tensor p = softmax(scaled);
  double total = 0;
  for (const int32_t token : order) total += p.data<float>()[token];
  double sum = 0;
  for (const int32_t token : order) {
    sum += p.data<float>()[token];
    if (static_cast<double>(u) * total < sum) return token;
  }
  return order.back();
}

}  // namespace

TextGenerator::TextGenerator(const Job& job, std::vector<int32_t> tokens, const GenerationOptions& options)
    : job_(job), tokens_(std::move(tokens)), options_(options) {
  check(!tokens_.empty(), "[generation] at least one token expected that the text starts with");
}

int32_t TextGenerator::next() {
  const NoGrad constant;
  const size_t context = static_cast<size_t>(job_.data->input_shape()[0]), length = std::min(context, tokens_.size());
  const std::vector<int32_t> last(tokens_.end() - static_cast<std::ptrdiff_t>(length), tokens_.end());
  Context forward;
  const Tensor input = Tensor::from(last, {1, static_cast<int64_t>(length)}).to(job_.device);
  const Tensor logits = job_.network->forward(input, forward).value();
  const Tensor row = logits.select(0, 0).select(0, static_cast<int64_t>(length) - 1).to(Device{}).to_contiguous();
  const Rng rng{.seed = options_.seed, .step = made_++, .vrank = 0, .op = 0};
  tokens_.push_back(draw(row, options_, uniform01(rng.block(0).v[0])));
  return tokens_.back();
}

}  // namespace elinvar
