#pragma once
// A split of a set of images with a class for each pixel: the last channel of the images of `parts`, kNoClass where
// there is none. Samples are transformed images (H, W, 3) float32 and classes (H, W) int64, in which kIgnoredClass is
// none.
#include <memory>

#include "data/dataset.h"
#include "data/image_source.h"

namespace elinvar {

inline constexpr int64_t kIgnoredClass = -100;  // the default of loss.ignore_index

std::unique_ptr<Dataset> open_mask_dataset(const DataConfig& config, const ImageParts& parts,
                                           const PixelStatistics& usual, Split split);

}  // namespace elinvar
