#include "nn/sampling.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "tensor/ops/pointwise.h"
#include "tensor/ops/softmax.h"

namespace elinvar {
namespace {

using Tokens = std::vector<int32_t>;

// Keeps the k most likely tokens, in any order.
void keep_likeliest(Tokens& tokens, std::span<const float> z, int64_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= tokens.size()) return;
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = z[static_cast<size_t>(a)], y = z[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::nth_element(tokens.begin(), tokens.begin() + k, tokens.end(), likelier);
  tokens.resize(static_cast<size_t>(k));
}

double sum_of(const Tokens& tokens, std::span<const float> p) {
  double sum = 0;
  for (const int32_t token : tokens) sum += p[static_cast<size_t>(token)];
  return sum;
}

// Keeps the smallest set of most likely tokens that has the share `top_p` of their probability. `tokens` are ascending.
void keep_nucleus(Tokens& tokens, std::span<const float> p, double top_p) {
  const double total = sum_of(tokens, p);
  // The tokens below this have less probability together than the part left out, so they are not needed; this spares
  // sorting most tokens.
  const double needless = (1.0 - top_p) * total / static_cast<double>(tokens.size());
  Tokens likely;
  for (const int32_t token : tokens)
    if (p[static_cast<size_t>(token)] >= needless) likely.push_back(token);
  std::stable_sort(likely.begin(), likely.end(),
                   [&](int32_t a, int32_t b) { return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)]; });
  double sum = 0;
  size_t count = 0;
  while (count < likely.size() && (count == 0 || sum < top_p * total)) sum += p[static_cast<size_t>(likely[count++])];
  likely.resize(count);
  tokens = std::move(likely);
}

}  // namespace

int32_t draw(const Tensor& logits, std::span<const int32_t> seen, const Sampling& sampling, float u) {
  Tensor scaled = logits.clone();
  const std::span<float> z = scaled.span<float>();
  if (sampling.repetition_penalty != 1.0) {
    const auto penalty = static_cast<float>(sampling.repetition_penalty);
    for (const int32_t token : std::set<int32_t>(seen.begin(), seen.end())) {
      float& x = z[static_cast<size_t>(token)];
      x = x > 0.0f ? x / penalty : x * penalty;
    }
  }
  if (sampling.temperature == 0) return static_cast<int32_t>(std::max_element(z.begin(), z.end()) - z.begin());

  Tokens tokens(z.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  keep_likeliest(tokens, z, sampling.top_k);
  std::sort(tokens.begin(), tokens.end());
  scale_into(scaled, 1.0 / sampling.temperature);
  const Tensor shares = softmax(scaled);
  const std::span<const float> p = shares.span<float>();
  if (sampling.top_p < 1.0) {
    keep_nucleus(tokens, p, sampling.top_p);
    std::sort(tokens.begin(), tokens.end());
  }
  const double total = sum_of(tokens, p);
  double sum = 0;
  for (const int32_t token : tokens) {
    sum += p[static_cast<size_t>(token)];
    if (static_cast<double>(u) * total < sum) return token;
  }
  return tokens.back();
}

}  // namespace elinvar
