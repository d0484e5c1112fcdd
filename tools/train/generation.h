#pragma once
// Text from a language model, one token after another.
#include <cstdint>
#include <vector>

#include "tools/train/job.h"

namespace elinvar {

struct GenerationOptions {
  double temperature = 1.0;  // 0: always the likeliest
  int64_t top_k = 0;         // only among so many likeliest tokens; 0: all
  uint64_t seed = 0;
};

class TextGenerator {
 public:
  // `tokens`, at least one, are what the text starts with.
  TextGenerator(const Job& job, std::vector<int32_t> tokens, const GenerationOptions& options);
  // The next token, by what the network says after as many of the last ones as its context holds.
  int32_t next();

 private:
  const Job& job_;
  std::vector<int32_t> tokens_;
  GenerationOptions options_;
  uint32_t made_ = 0;
};

}  // namespace elinvar
