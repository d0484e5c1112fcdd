#pragma once
// Images with boxes, `kind = "synthetic_boxes"`: one to four shapes, which do not overlap, of random places, sizes and
// classes on grey. A class is a rectangle, an ellipse or a triangle (class % 3) of a colour of its own; its boxes touch
// it on all sides. Noise is added to every pixel. All in integer arithmetic; targets are those of data/letterbox.h.
#include <memory>

#include "data/dataset.h"

namespace elinvar {

std::unique_ptr<Dataset> open_synthetic_boxes(const DataConfig& config, Split split);

}  // namespace elinvar
