// `train sample`: text from a language model, one token after another.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "tensor/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/softmax.h"
#include "tools/train/commands.h"
#include "tools/train/job.h"

namespace elinvar {
namespace {

// The token whose share of the distribution holds `u` in [0, 1): softmax(logits / temperature) over the top_k
// likeliest, added up in binary64 in the order of token numbers. At equal logits the lower number is the likelier.
int32_t draw(const Tensor& logits, double temperature, int64_t top_k, float u) {
  const int64_t n = logits.numel();
  const std::span<const float> z = logits.span<float>();
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)]; });
  if (temperature == 0) return order[0];
  if (top_k > 0) order.resize(static_cast<size_t>(std::min(top_k, n)));
  std::sort(order.begin(), order.end());

  Tensor scaled = logits.clone();
  scale_into(scaled, 1.0 / temperature);
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

int sample(const SampleCommand& command) {
  const std::filesystem::path directory = command.run_dir;
  Job job(read_run_config(directory), Split::train, command.device);
  const Vocabulary* vocabulary = job.data->vocabulary();
  check(vocabulary != nullptr, "{} has a network for images; only one for text can be sampled from",
        directory.string());
  check(!command.prompt.empty(), "--prompt must not be empty: the text starts with it");
  std::vector<int32_t> tokens = vocabulary->encode_prompt(command.prompt);
  job.load_network(directory);

  const size_t context = static_cast<size_t>(job.data->input_shape()[0]);
  const NoGrad constant;
  fmt::print("{}", command.prompt);
  for (int64_t i = 0; i < command.tokens; ++i) {
    const size_t length = std::min(context, tokens.size());
    const std::vector<int32_t> last(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end());
    Context forward;
    const Tensor logits = job.network->forward(Tensor::from(last, {1, static_cast<int64_t>(length)}), forward).value();
    const Tensor row = logits.select(0, 0).select(0, static_cast<int64_t>(length) - 1).to(Device{}).to_contiguous();
    const Rng rng{.seed = command.seed, .step = static_cast<uint32_t>(i), .vrank = 0, .op = 0};
    tokens.push_back(draw(row, command.temperature, command.top_k, uniform01(rng.block(0).v[0])));
    fmt::print("{}", vocabulary->decode(tokens.back()));
    std::fflush(stdout);
  }
  fmt::print("\n");
  return 0;
}

}  // namespace elinvar
