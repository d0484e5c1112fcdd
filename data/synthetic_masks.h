#pragma once
// Images with a class for each pixel, `kind = "synthetic_masks"`: rectangles and discs of random places, sizes and
// classes on a background of class 0, later ones over earlier ones. Each class has a colour, to which every pixel's
// noise is added. All in integer arithmetic.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_synthetic_masks(const DataConfig& config, Split split);

}  // namespace elinvar
