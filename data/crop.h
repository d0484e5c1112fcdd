#pragma once
// Which part of an image a sample shows, at which scale, and mirrored or not. The choice depends on the image's size
// alone, so an image and the classes of its pixels are cut alike.
//
//   evaluation  scale the shorter side to `resize`, take the central square of image_size
//   training    the same, but with a random square of the image padded by crop_padding pixels (black, or the image
//               reflected at its border pixels, which are not repeated). With random_resized_crop instead: a random
//               part whose share of the area is uniform in [crop_area_min, 1) and whose aspect (either way) is uniform
//               in [1, 4/3), scaled to image_size (after ten failed tries, the central square). Then a flip with
//               probability 1/2 (alternate_flip: drawn once for a sample, and inverted in odd epochs; K. Jordan, "94%
//               on CIFAR-10 in 3.29 seconds", 2024)
// Images are not scaled if image_size is 0, and must then all have the same size.
//
// Random words are transform_words(index, draw, block). Block 0 has the square's y and x and the flip; block 1 + k the
// area, aspect (bit 0: which way), y and x of the k-th try; block 12, with epoch 0, the alternating flip. A number
// below n is (word * n) >> 32. Areas and sides are computed in binary64 with + * / sqrt, and rounded to the nearest
// pixel.
#include <functional>
#include <string>

#include "data/dataset.h"
#include "data/image.h"
#include "data/resize.h"
#include "tensor/philox.h"

namespace elinvar {

// Returns the random words of a transformation of an image, philox(seed ^ key_of("data.transform"), epoch, index low,
// index high, block).
Random4 transform_words(int64_t index, const Draw& draw, uint32_t block);

// The part of an image that a sample shows. `part` is scaled to (height, width); the sample is the window of this whose
// corner is at (top, left). The window may exceed the scaled part, and may be mirrored left and right.
struct Crop {
  Rect part;
  int64_t height = 0, width = 0;
  int64_t top = 0, left = 0;
  bool mirrored = false;
};

class Cropper {
 public:
  // `stored`, the first image, sets the size if image_size is 0. Throws SettingError for invalid settings.
  Cropper(const DataConfig& config, const ImageView& stored);

  int64_t height() const { return size_h_; }  // of samples
  int64_t width() const { return size_w_; }

  // Throws Failure, with the name that `where` returns, if the image does not fit.
  Crop choose(const ImageView& image, int64_t index, const Draw& draw, const std::function<std::string()>& where) const;

  // Returns the pixels that a sample shows, scaled by data/resize.h.
  Image cut(const ImageView& image, const Crop& crop) const;
  // Calls f(at, pixel) for each pixel of the sample, in rows: the nearest stored pixel, or null outside the image.
  // Pixel i of n along a side is stored pixel floor((2 i + 1) part / (2 n)) of the part.
  void each_nearest(const ImageView& image, const Crop& crop,
                    const std::function<void(int64_t at, const uint8_t* pixel)>& f) const;

  // Returns the pixel of the sample that shows pixel (y, x) of an image that was cut so, and was not augmented; -1 if
  // none does.
  int64_t shown_at(const Crop& crop, int64_t y, int64_t x) const;

  // Hashes its settings and two more, in the order of older digests of data.
  void describe(Hasher& hasher, int64_t channels, int64_t cutout) const;

 private:
  Crop random_part(const ImageView& image, int64_t index, const Draw& draw) const;
  bool is_mirrored(int64_t index, const Draw& draw, uint32_t word) const;
  Image window(const ImageView& image, int64_t top, int64_t left, bool mirrored) const;

  bool as_stored_, random_part_, flip_, alternate_flip_, reflect_;
  int64_t size_h_, size_w_, shorter_, padding_;
  double area_min_;
};

}  // namespace elinvar
