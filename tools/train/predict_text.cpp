// Computes the loss of a text and the most probable next tokens. The text is cut into windows of the network's context,
// as a validation split is, so that the loss can be compared with that of `train eval`. The last window may be shorter.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/text_pairs.h"
#include "nn/decoder.h"
#include "nn/micro_batch.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/train/likeliest.h"
#include "tools/train/predict.h"
#include "tools/train/stdin_text.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_of(const std::string& path) {
  if (path == "-") return text_on_stdin("--text -: expected a text on stdin");
  std::error_code error;
  check(std::filesystem::exists(path, error), "--text: there is no {}", path);
  return without_last_newline(read_file(path));
}

// Returns the cross entropy of `count` windows of `length` tokens from token `begin` on. The target of each token is
// the next one.
BatchScore loss_of(const TrainingSetup& setup, std::span<const int32_t> tokens, int64_t begin, int64_t count,
                   int64_t length) {
  Tensor tokens_in = Tensor::empty({count, length}, DType::i32), target = Tensor::empty({count, length}, DType::i64);
  for (int64_t i = 0; i < count * length; ++i) {
    const auto at = static_cast<size_t>(begin + i);
    tokens_in.data<int32_t>()[i] = tokens[at];
    target.data<int64_t>()[i] = tokens[at + 1];
  }
  CrossEntropyOptions plain = setup.config.loss;
  plain.label_smoothing = 0;  // perplexity is that of the text itself
  const Inputs input = tokens_in;
  return evaluate(output_of(setup, std::span(&input, 1)), target, plain);
}

// Returns the mean cross entropy of all tokens but the first; NaN if there is only one.
double mean_loss(const TrainingSetup& setup, std::span<const int32_t> tokens) {
  const int64_t context = setup.data->input_shape()[0], batch = setup.rank_samples();
  const auto targets = static_cast<int64_t>(tokens.size()) - 1;
  double sum = 0;
  int64_t count = 0;
  for (int64_t at = 0; at < targets;) {
    const int64_t whole = std::min(batch, (targets - at) / context);
    const int64_t length = whole > 0 ? context : targets - at, windows = std::max<int64_t>(whole, 1);
    const BatchScore result = loss_of(setup, tokens, at, windows, length);
    sum += result.loss_sum;
    count += result.count;
    at += windows * length;
  }
  return sum / static_cast<double>(count);
}

std::string dumped(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

}  // namespace

int predict_text(const PredictOptions& options) {
  const std::filesystem::path directory = options.run_dir;
  TrainingSetup setup(read_run_config(directory), Split::train, parse_device(options.device.device));
  const Vocabulary* vocabulary = setup.data->vocabulary();
  check(vocabulary != nullptr, "--text: {} has no network that goes on with a text", directory.string());
  check(!form_of_pairs(*setup.data), "--text: {} has a network of pairs of texts; train sample writes the second text",
        directory.string());
  std::vector<int32_t> tokens = vocabulary->encode_prompt(text_of(options.text));
  const std::optional<int32_t> end = vocabulary->end_of_text();
  check(!tokens.empty() || end, "--text: the text is empty, and no token begins texts here");
  if (tokens.empty()) tokens.push_back(*end);
  const int64_t step = setup.load_network(directory);

  const double loss = mean_loss(setup, tokens);
  Decoder decoder(*setup.network, setup.data->input_shape()[0]);
  const Tensor logits = decoder.logits(tokens);
  const std::vector<Likely> next = likeliest(logits.reshape({1, logits.numel()}), options.top).front();
  if (options.json) {
    OrderedJson likely = OrderedJson::array();
    for (const Likely& one : next)
      likely.push_back({{"token", one.index},
                        {"text", vocabulary->decode(static_cast<int32_t>(one.index))},
                        {"probability", one.probability}});
    fmt::print("{}\n", dumped({{"text", options.text},
                               {"step", step},
                               {"tokens", tokens.size()},
                               {"loss", loss},
                               {"perplexity", std::exp(loss)},
                               {"next", likely}}));
    return 0;
  }
  fmt::print("step={} tokens={} loss={:.6g} perplexity={:.6g}\nnext:\n", step, tokens.size(), loss, std::exp(loss));
  for (const Likely& one : next)
    fmt::print("  {:.4f}  {}\n", one.probability, dumped(vocabulary->decode(static_cast<int32_t>(one.index))));
  return 0;
}

}  // namespace elinvar
