#pragma once
// Pairs of texts, for networks that write a target from a source (models/t5.cpp): `kind = "text_pairs"` and
// `"synthetic_pairs"`.
//
// Two symbols come after those of the vocabulary, which both texts share: the end, and the start. Inputs are the source
// and the end (S) int32; the start and the target (T) int32; and the source's tokens with the end, (1) int32. Targets
// are the target and the end (T) int64. Sequences are cut to S = data.context and T = data.target_context; a shorter
// one is followed by zeros, or in the targets by kIgnoredTarget.
#include <memory>
#include <optional>

#include "data/dataset.h"

namespace elinvar {

// The rows of files (data/text_rows.h). Both texts of a row must not be empty.
std::unique_ptr<Dataset> open_text_pairs(const DataConfig& config, Split split);

// Letters in a random order, and sorted: the source has from 1 to S - 1 letters, of the first data.classes of the
// alphabet. The target follows from the source, so that the best loss is 0.
std::unique_ptr<Dataset> open_synthetic_pairs(const DataConfig& config, Split split);

struct PairsForm {
  int64_t source, target;  // the longest sequences, S and T
  int32_t end, start;
};
std::optional<PairsForm> form_of_pairs(const Dataset& data);  // none for other data

}  // namespace elinvar
