#pragma once
// Text as samples of T tokens and the T that follow each. `kind = "text"`, `"tokens"` and `"synthetic_text"`.
//
// The first part of the text, floor(tokens * (1 - validation_fraction)) tokens (fraction 0.1 if 0 is given), is for
// training, the rest for validation; files of tokens with a second part of their own are cut only if a fraction is
// given. Sample i is the window that begins at token offset + i*T. For evaluation the offset is 0. For training it is
// drawn anew for each epoch, in [0, T) or as far as the text allows, from philox(seed ^ key_of("data.text"), epoch, 0,
// 0, 0), so that windows do not begin at the same places every time; up to 2T tokens at the ends take no part in one
// epoch. What is shorter than a window at the end of a validation text is left out.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_text(const DataConfig& config, Split split);
std::unique_ptr<Dataset> open_tokens(const DataConfig& config, Split split);
std::unique_ptr<Dataset> open_synthetic_text(const DataConfig& config, Split split);

}  // namespace elinvar
