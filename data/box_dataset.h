#pragma once
// A split of a set of images with boxes. Samples are images in squares (data/letterbox.h), and data.boxes targets.
#include <memory>

#include "data/dataset.h"
#include "data/image_source.h"

namespace elinvar {

// Throws Failure for an image that has more boxes than a sample.
std::unique_ptr<Dataset> open_box_dataset(const DataConfig& config, const ImageParts& parts,
                                          const PixelStatistics& usual, Split split);

}  // namespace elinvar
