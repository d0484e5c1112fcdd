#pragma once
// Generates text with a language model, one token after another; with a network of pairs of texts (data/text_pairs.h),
// the text that belongs to a given one.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "nn/decoder.h"
#include "nn/sampling.h"
#include "tools/training/training_setup.h"

namespace elinvar {

struct GenerationOptions {
  Sampling sampling = {};
  uint64_t seed = 0;
  bool cached = true;  // keeps keys and values of earlier tokens: faster, with the same text
};

class TextGenerator {
 public:
  // `tokens` (at least one) is the start of the text, or the source of a pair. The network must not change afterwards.
  TextGenerator(const TrainingSetup& setup, std::vector<int32_t> tokens, const GenerationOptions& options);
  // Returns the next token, drawn from the network's output for the last tokens that fit its context (nn/decoder.h).
  int32_t next();
  // Whether a text has no token after this one, which is not part of it.
  bool ends(int32_t token) const { return token >= symbols_ || token == end_; }
  // Begins another text with the same start. Its number selects the text; the first text is number 0.
  void begin(uint32_t number);

 private:
  std::unique_ptr<Network> of_source_;  // of pairs of texts: the network, given the source
  std::vector<int32_t> tokens_;
  size_t given_;
  GenerationOptions options_;
  int64_t context_, symbols_;
  std::optional<int32_t> end_;
  Precision precision_;
  Decoder decoder_;
  uint32_t number_ = 0, made_ = 0;
};

}  // namespace elinvar
