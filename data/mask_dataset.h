#pragma once
// A split of a set of images with a class for each pixel. The last channel of the images of `parts` has the classes,
// and kNoClass where a pixel has none. Samples are transformed images (H, W, 3) float32 and their classes (H, W) int64;
// kIgnoredClass stands for no class.
#include <memory>

#include "data/dataset.h"
#include "data/image_source.h"

namespace elinvar {

inline constexpr int64_t kIgnoredClass = -100;  // the default of loss.ignore_index

std::unique_ptr<Dataset> open_mask_dataset(const DataConfig& config, const ImageParts& parts,
                                           const PixelStatistics& usual, Split split);

}  // namespace elinvar
