#pragma once
// Text from a language model, one token after another.
#include <cstdint>
#include <vector>

#include "nn/decoder.h"
#include "nn/sampling.h"
#include "tools/training/job.h"

namespace elinvar {

struct GenerationOptions {
  Sampling sampling = {};
  uint64_t seed = 0;
  bool cached = true;  // keys and values of earlier tokens are kept: quicker, the same text
};

class TextGenerator {
 public:
  // `tokens`, at least one, are what the text starts with. The network must not change from here on.
  TextGenerator(const Job& job, std::vector<int32_t> tokens, const GenerationOptions& options);
  // The next token, by what the network says after those of the last ones that it sees (nn/decoder.h).
  int32_t next();
  // From now on it is the text of this number that starts so: another one. The first is 0.
  void begin(uint32_t number);

 private:
  std::vector<int32_t> tokens_;
  size_t given_;
  GenerationOptions options_;
  int64_t context_;
  Decoder decoder_;
  uint32_t number_ = 0, made_ = 0;
};

}  // namespace elinvar
