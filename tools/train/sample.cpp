// `train sample`: generates text with a language model, token by token; with a network of pairs of texts, the second
// text of a pair.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/text_pairs.h"
#include "data/utf8.h"
#include "nn/sampling.h"
#include "tensor/base/check.h"
#include "tools/cli/device_options.h"
#include "tools/cli/number_from.h"
#include "tools/train/commands.h"
#include "tools/train/stdin_text.h"
#include "tools/training/text_generation.h"

namespace elinvar {
namespace {

struct SampleOptions {
  std::string run_dir;
  std::optional<std::string> prompt;  // none: stdin without a newline at its end
  int64_t tokens = 256;               // of each text, at most
  int64_t count = 1;                  // number of texts
  Sampling sampling = {};
  uint64_t seed = 0;
  bool cached = true;  // keep keys and values of earlier tokens: faster, with the same text
  bool json = false;   // one line of JSON per text
  DeviceOptions device;
};

using Clock = std::chrono::steady_clock;

std::string prompt_of(const SampleOptions& command) {
  if (command.prompt) return *command.prompt;
  return text_on_stdin("--prompt TEXT expected, or a text on stdin");
}

// Writes text to stdout as it arrives, but only whole characters.
class Stream {
 public:
  void put(std::string_view text) {
    waiting_ += text;
    write(waiting_.size() - unfinished_bytes(waiting_));
  }
  void end() { write(waiting_.size()); }

 private:
  void write(size_t bytes) {
    if (std::fwrite(waiting_.data(), 1, bytes, stdout) != bytes || std::fflush(stdout) != 0)
      fail("cannot write to stdout");
    waiting_.erase(0, bytes);
  }
  std::string waiting_;
};

struct Text {
  std::vector<int32_t> tokens;  // without the prompt
  std::string text;
  bool ended = false;  // the model generated the token that ends texts, which is left out
};

int sample(const SampleOptions& command) {
  const std::filesystem::path directory = command.run_dir;
  TrainingSetup setup(read_run_config(directory), Split::train, parse_device(command.device.device));
  const Vocabulary* vocabulary = setup.data->vocabulary();
  check(vocabulary != nullptr, "{} has no network that goes on with a text; only such a one can be sampled from",
        directory.string());
  const std::optional<int32_t> end = vocabulary->end_of_text();
  const std::optional<PairsForm> pairs = form_of_pairs(*setup.data);
  const int64_t most = pairs ? std::min(command.tokens, pairs->target) : command.tokens;
  const std::string prompt = prompt_of(command);
  check(!prompt.empty() || end, "--prompt must not be empty: the text starts with it, as no token begins texts here");
  std::vector<int32_t> tokens = vocabulary->encode_prompt(prompt);
  if (tokens.empty()) tokens.push_back(*end);
  setup.load_network(directory);

  TextGenerator generator(setup, std::move(tokens),
                          {.sampling = command.sampling, .seed = command.seed, .cached = command.cached});
  int64_t drawn = 0;
  const Clock::time_point began = Clock::now();
  for (int64_t n = 0; n < command.count; ++n) {
    generator.begin(static_cast<uint32_t>(n));
    Text text;
    Stream out;
    if (!command.json) out.put((n > 0 ? "---\n" : "") + (pairs ? "" : prompt));
    for (int64_t i = 0; i < most && !text.ended; ++i, ++drawn) {
      const int32_t token = generator.next();
      text.ended = generator.ends(token);
      if (text.ended) continue;
      text.tokens.push_back(token);
      text.text += vocabulary->decode(token);
      if (!command.json) out.put(vocabulary->decode(token));
    }
    if (command.json) {
      const nlohmann::ordered_json line = {{"sample", n},
                                           {"prompt", prompt},
                                           {"text", text.text},
                                           {"tokens", text.tokens},
                                           {"end", text.ended ? "end of text" : "length"}};
      out.put(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    }
    out.put("\n");
    out.end();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  fmt::print(stderr, "{} tokens in {:.2f} s, {:.1f} tokens/s\n", drawn, seconds,
             seconds > 0 ? static_cast<double>(drawn) / seconds : 0.0);
  return 0;
}

}  // namespace

Command add_sample(CLI::App& program) {
  const auto options = std::make_shared<SampleOptions>();
  CLI::App* app = program.add_subcommand("sample", "text from a run's newest checkpoint");
  app->add_option("run_dir", options->run_dir, "a run directory")->required();
  app->add_option_function<std::string>(
      "--prompt", [o = options.get()](const std::string& text) { o->prompt = text; },
      "what the text starts with, or of pairs the first text (default: read from stdin)");
  app->add_option("--tokens", options->tokens, "at most so many tokens are added")
      ->check(CLI::Range(0, 1000000).description(""))
      ->capture_default_str();
  app->add_option("--count", options->count, "how many texts")
      ->check(CLI::Range(1, 1000000).description(""))
      ->capture_default_str();
  Sampling& sampling = options->sampling;
  app->add_option("--temperature", sampling.temperature, "0: always the likeliest token; 1: as the network says")
      ->check(number_from(0, 100))
      ->capture_default_str();
  app->add_option("--top-k", sampling.top_k, "only among so many likeliest tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--top-p", sampling.top_p, "only among the fewest likeliest that have this share of the whole")
      ->check(number_from(0, 1))
      ->capture_default_str();
  app->add_option("--repetition-penalty", sampling.repetition_penalty,
                  "above 1: tokens that are seen become less likely")
      ->check(number_from(0.01, 100))
      ->capture_default_str();
  app->add_flag("!--no-cache", options->cached, "compute all tokens again for each one: the same text, slowly");
  app->add_flag("--json", options->json, "a line of JSON for each text");
  app->add_option("--seed", options->seed, "another number, another text")->capture_default_str();
  options->device.add_to(*app);
  return {app, [options] {
            options->device.apply();
            return sample(*options);
          }};
}

}  // namespace elinvar
