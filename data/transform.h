#pragma once
// Turns a decoded image into the input of a network: scales, crops and mirrors it (data/crop.h), changes the colours of
// training images (data/color_jitter.h) and normalises it (data/pixel_values.h). Then cutout: in training, a square of
// that side around a random pixel, as far as it lies in the image, gets the mean colour (T. DeVries, G. W. Taylor,
// 2017). All but the values is integer arithmetic on bytes; every random choice is a function of (seed, epoch, sample).
//
// Random words are transform_words(index, draw, block). Block 11 has the cutout's y and x; block 13 the amounts of
// colour jitter and block 14 their order.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/color_jitter.h"
#include "data/crop.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/pixel_values.h"

namespace elinvar {

inline constexpr uint8_t kNoClass = 255;  // of a pixel

class ImageTransform {
 public:
  // `stored`, the first image, sets the number of channels, and the size if image_size is 0. Throws SettingError for
  // invalid settings.
  ImageTransform(const DataConfig& config, const ImageView& stored, const PixelStatistics& usual);

  Shape output_shape() const { return {crop_.height(), crop_.width(), channels_}; }

  // Writes (H, W, C) float32. Throws Failure, with the name that `where` returns, if the image does not fit.
  void operator()(const ImageView& image, int64_t index, const Draw& draw, const std::function<std::string()>& where,
                  float* output) const;

  // The same of an image with one more channel, the class of each pixel, which is written to `classes` (H, W): that of
  // the nearest pixel, `none` outside the image, and also where the class is kNoClass.
  void with_classes(const ImageView& image, int64_t index, const Draw& draw, const std::function<std::string()>& where,
                    float* output, int64_t none, int64_t* classes) const;

  // Returns the classes (height, width) of an image of which the sample, not augmented, has `classes`; kNoClass where
  // the sample does not show it.
  Image classes_in_image(const uint8_t* classes, int64_t height, int64_t width) const;

  void describe(Hasher& hasher) const;

 private:
  void finish(Image square, int64_t index, const Draw& draw, float* output) const;
  void cut_out(int64_t index, const Draw& draw, float* output) const;

  Cropper crop_;
  int64_t channels_, cutout_;
  ColorJitter jitter_;
  PixelValues values_;
};

}  // namespace elinvar
