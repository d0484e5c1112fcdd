#pragma once
// Texts that have a label each, `kind = "labelled_text"`.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

// The name that tokenizer.json has for the symbol of the text as a whole.
constexpr const char* kWholeText = "[CLS]";

std::unique_ptr<Dataset> open_labelled_text(const DataConfig& config, Split split);

}  // namespace elinvar
