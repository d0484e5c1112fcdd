#pragma once
// Images whose pixels are classes: PNGs of greys, where the class is the grey, or of palettes, where it is the index of
// the colour (as in PASCAL VOC). 255 is no class.
#include <string>
#include <string_view>

#include "data/image.h"

namespace elinvar {

// Returns one channel. Throws what decode_image() throws, and BrokenImage for a PNG of another type: colours without a
// palette, or 16 bits.
Image decode_classes(std::string_view bytes, const std::string& where);

// Returns a PNG of greys with the classes of an image of one channel.
std::string encode_classes(const Image& classes);

}  // namespace elinvar
