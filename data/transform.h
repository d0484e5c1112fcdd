#pragma once
// Turns a decoded image into the input of a network: scales, crops, mirrors and normalises it. All but the last step is
// integer arithmetic on bytes; every random choice is a function of (seed, epoch, sample).
//
//   evaluation  scale the shorter side to `resize`, take the central square of image_size
//   training    the same, but with a random square of the image padded by crop_padding pixels (black, or the image
//               reflected at its border pixels, which are not repeated). With random_resized_crop instead: a random
//               part whose share of the area is uniform in [crop_area_min, 1) and whose aspect (either way) is uniform
//               in [1, 4/3), scaled to image_size (after ten failed tries, the central square). Then a flip with
//               probability 1/2 (alternate_flip: drawn once for a sample, and inverted in odd epochs; K. Jordan, "94%
//               on CIFAR-10 in 3.29 seconds", 2024). Then colour jitter (data/color_jitter.h). Then cutout: a square of
//               that side around a random pixel, as far as it lies in the image, gets the mean colour (T. DeVries, G.
//               W. Taylor, 2017)
//   both        values of pixels (data/pixel_values.h)
// With image_size = 0 images are not scaled, and must all have the same size.
//
// Random words are philox(seed ^ key_of("data.transform"), epoch, index low, index high, block). Block 0 has the
// square's y and x and the flip; block 1 + k the area, aspect (bit 0: which way), y and x of the k-th try; block 11 the
// cutout's y and x; block 12, with epoch 0, the alternating flip; block 13 the amounts of colour jitter and block 14
// their order. A number below n is (word * n) >> 32. Areas and sides are computed in binary64 with + * / sqrt, and
// rounded to the nearest pixel.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/color_jitter.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/pixel_values.h"
#include "data/resize.h"

namespace elinvar {

class ImageTransform {
 public:
  // `stored`, the first image, sets the number of channels, and the size if image_size is 0. Throws SettingError for
  // invalid settings.
  ImageTransform(const DataConfig& config, const ImageView& stored, const PixelStatistics& usual);

  Shape output_shape() const { return {size_h_, size_w_, channels_}; }

  // Writes (H, W, C) float32. Throws Failure, with the name that `where` returns, if the image does not fit.
  void operator()(const ImageView& image, int64_t index, const Draw& draw, const std::function<std::string()>& where,
                  float* output) const;

  void describe(Hasher& hasher) const;

 private:
  Image scaled_random_part(const ImageView& image, int64_t index, const Draw& draw) const;
  bool is_mirrored(int64_t index, const Draw& draw, uint32_t word) const;
  Image cut(const ImageView& image, int64_t top, int64_t left, bool mirrored) const;
  void finish(Image square, int64_t index, const Draw& draw, float* output) const;
  void cut_out(int64_t index, const Draw& draw, float* output) const;

  bool as_stored_, random_part_, flip_, alternate_flip_, reflect_;
  int64_t size_h_, size_w_, channels_, shorter_, padding_, cutout_;
  double area_min_;
  ColorJitter jitter_;
  PixelValues values_;
};

}  // namespace elinvar
