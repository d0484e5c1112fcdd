#pragma once
// The orientation of the stored pixels as a camera notes it in EXIF data (CIPA DC-008, tag 0x0112).
#include <string_view>

#include "data/image.h"

namespace elinvar {

// Returns the orientation in a TIFF block, the form of EXIF data: from 1 (upright) to 8; 1 if the tag is absent or the
// block is malformed.
int orientation_of(std::string_view tiff);

// Returns the image turned and mirrored for display.
Image upright(Image image, int orientation);

}  // namespace elinvar
