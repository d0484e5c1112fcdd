#pragma once
// Masked tokens, which a network learns to restore (J. Devlin et al., "BERT: Pre-training of Deep Bidirectional
// Transformers for Language Understanding", NAACL 2019). Of each token of a text, chosen with probability `share`, the
// target is the token itself; other targets are kIgnoredTarget. Of the chosen ones 80 % become the mask, which is a
// symbol after those of the vocabulary, 10 % a token of the vocabulary drawn at random, and 10 % stay.
//
// `as_input` makes the targets a second input, too, (T) int32.
//
// The words for token t of sample i are philox(seed ^ key_of("data.masking"), epoch, i low, i high, t): the first one
// chooses, the second one decides what becomes of it, the third is the random token. Without augmentation seed and
// epoch are 0, so that all runs validate on the same masks.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

inline constexpr int64_t kIgnoredTarget = -100;

// Whether samples have such targets.
inline bool ignores_targets(const DataConfig& config) {
  return config.masking > 0 || config.kind == "text_pairs" || config.kind == "synthetic_pairs";
}

// `text` has tokens (T) and the tokens that follow them; these targets are replaced.
std::unique_ptr<Dataset> masked_tokens(std::unique_ptr<Dataset> text, double share, bool as_input = false);

}  // namespace elinvar
