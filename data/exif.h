#pragma once
// The orientation that a camera notes in an image's EXIF data (CIPA DC-008, tag 0x0112): how the stored pixels lie.
#include <string_view>

#include "data/image.h"

namespace elinvar {

// Of the TIFF block that EXIF data are, from 1 (upright) to 8. Where it is absent or the block makes no sense: 1.
int orientation_of(std::string_view tiff);

// The image as it is to be seen.
Image upright(Image image, int orientation);

}  // namespace elinvar
