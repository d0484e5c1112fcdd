#pragma once
// A split of a set of images, whose samples are transformed images (H, W, C) float32 and labels.
#include <memory>

#include "data/dataset.h"
#include "data/image_source.h"

namespace elinvar {

std::unique_ptr<Dataset> open_image_dataset(const DataConfig& config, const ImageParts& parts,
                                            const PixelStatistics& usual, Split split);

}  // namespace elinvar
