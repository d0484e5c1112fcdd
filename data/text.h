#pragma once
// Text as samples: T tokens and, as the target, the token that follows each. `kind = "text"`, `"tokens"` and
// `"synthetic_text"`.
//
// The first floor(tokens * (1 - validation_fraction)) tokens of the text (fraction 0.1 if 0 is given) are for training,
// the rest for validation; token files with a second part of their own are split only if a fraction is given. Sample i
// is the window that begins at token offset + i*T. For evaluation the offset is 0. For training it is drawn for each
// epoch from philox(seed ^ key_of("data.text"), epoch, 0, 0, 0), in [0, T) or as far as the text allows, so that
// windows begin at other places in each epoch; up to 2T tokens at the ends are not used in one epoch. A remainder at
// the end of a validation text that is shorter than a window is left out.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_text(const DataConfig& config, Split split);
std::unique_ptr<Dataset> open_tokens(const DataConfig& config, Split split);
std::unique_ptr<Dataset> open_synthetic_text(const DataConfig& config, Split split);

}  // namespace elinvar
