#pragma once
// Scaling of images in integers, so that every machine gives the same pixels.
//
// A triangle filter as wide as the coarser of the two grids (bilinear when enlarging, without aliasing when reducing),
// first along rows, then along columns, each pass rounded to bytes. Along a side, output i of `out` takes from pixel j
// of `in` the weight
//   w(i, j) = max(0, 2*max(in, out) - |(2j + 1)*out - (2i + 1)*in|)
// as q = floor(w * 2^14 / sum of w), where the heaviest pixel (the first, of equals) takes what is left to 2^14; the
// result is (sum of q * pixel + 2^13) >> 14. An equal size changes no pixel.
#include "data/image.h"

namespace elinvar {

inline constexpr int kWeightBits = 14;

struct Rect {
  int64_t y = 0, x = 0, height = 0, width = 0;
};

// The `part` of an image scaled to (height, width), of which `window` is computed: an image of the window's size.
// Requires the part to lie inside the image, the window inside (height, width), none of them empty.
Image resize(const ImageView& image, const Rect& part, int64_t height, int64_t width, const Rect& window);

}  // namespace elinvar
