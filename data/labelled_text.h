#pragma once
// Texts that have a label each, `kind = "labelled_text"`.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_labelled_text(const DataConfig& config, Split split);

}  // namespace elinvar
