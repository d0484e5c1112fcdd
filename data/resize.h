#pragma once
// Scales images in integer arithmetic, so that every machine gives the same pixels.
//
// The filter is a triangle as wide as the coarser of the two grids (bilinear when enlarging, without aliasing when
// reducing). It is applied along rows, then along columns; each pass rounds to bytes. Along a side, output i of `out`
// has pixel j of `in` with the weight
//   w(i, j) = max(0, 2*max(in, out) - |(2j + 1)*out - (2i + 1)*in|)
// as q = floor(w * 2^14 / sum of w); the pixel with the largest weight (the first of equal ones) also takes the rest to
// 2^14. The result is (sum of q * pixel + 2^13) >> 14. Scaling to the same size changes no pixel.
#include "data/image.h"

namespace elinvar {

inline constexpr int kWeightBits = 14;

struct Rect {
  int64_t y = 0, x = 0, height = 0, width = 0;
};

// Scales the `part` of an image to (height, width) and returns the `window` of the result. The part must lie inside the
// image and the window inside (height, width); neither may be empty.
Image resize(const ImageView& image, const Rect& part, int64_t height, int64_t width, const Rect& window);

}  // namespace elinvar
