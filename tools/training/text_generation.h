#pragma once
// Generates text with a language model, one token after another.
#include <cstdint>
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
  // `tokens` (at least one) is the start of the text. The network must not change afterwards.
  TextGenerator(const TrainingSetup& setup, std::vector<int32_t> tokens, const GenerationOptions& options);
  // Returns the next token, drawn from the network's output for the last tokens that fit its context (nn/decoder.h).
  int32_t next();
  // Begins another text with the same start. Its number selects the text; the first text is number 0.
  void begin(uint32_t number);

 private:
  std::vector<int32_t> tokens_;
  size_t given_;
  GenerationOptions options_;
  int64_t context_;
  Precision precision_;
  Decoder decoder_;
  uint32_t number_ = 0, made_ = 0;
};

}  // namespace elinvar
