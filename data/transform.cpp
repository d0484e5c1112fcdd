#include "data/transform.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {

ImageTransform::ImageTransform(const DataConfig& config, const ImageView& stored, const PixelStatistics& usual)
    : crop_(config, stored),
      channels_(stored.channels),
      cutout_(config.cutout),
      jitter_(config.brightness, config.contrast, config.saturation, config.hue, channels_),
      values_(config, usual, channels_) {
  check_setting(cutout_ >= 0 && cutout_ <= 1 << 14, "data.cutout", "must be from 0 to 16384, got {}", cutout_);
}

void ImageTransform::operator()(const ImageView& image, int64_t index, const Draw& draw,
                                const std::function<std::string()>& where, float* output) const {
  if (image.channels != channels_ || image.height < 1 || image.width < 1)
    fail("[data] '{}' is {} x {} x {}, expected {} channels", where(), image.height, image.width, image.channels,
         channels_);
  finish(crop_.cut(image, crop_.choose(image, index, draw, where)), index, draw, output);
}

void ImageTransform::with_classes(const ImageView& image, int64_t index, const Draw& draw,
                                  const std::function<std::string()>& where, float* output, int64_t none,
                                  int64_t* classes) const {
  const Crop crop = crop_.choose(image, index, draw, where);
  const Image all = crop_.cut(image, crop);
  Image colours(all.height, all.width, channels_);
  for (int64_t at = 0; at < all.height * all.width; ++at)
    std::copy_n(all.pixels.data() + at * all.channels, channels_, colours.pixels.data() + at * channels_);
  finish(std::move(colours), index, draw, output);
  crop_.each_nearest(image, crop, [&](int64_t at, const uint8_t* pixel) {
    classes[at] = pixel == nullptr || pixel[channels_] == kNoClass ? none : pixel[channels_];
  });
}

Image ImageTransform::classes_in_image(const uint8_t* classes, int64_t height, int64_t width) const {
  Image image(height, width, 1);
  const Crop crop = crop_.choose({nullptr, height, width, channels_}, 0, {}, [] { return std::string(); });
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const int64_t at = crop_.shown_at(crop, y, x);
      image.pixels[static_cast<size_t>(y * width + x)] = at < 0 ? kNoClass : classes[at];
    }
  return image;
}

void ImageTransform::finish(Image square, int64_t index, const Draw& draw, float* output) const {
  if (draw.augment && !jitter_.changes_nothing())
    jitter_(square, transform_words(index, draw, 13), transform_words(index, draw, 14).v[0]);
  values_.write(square, output);
  cut_out(index, draw, output);
}

// Writes zeros, the mean colour of normalised values.
void ImageTransform::cut_out(int64_t index, const Draw& draw, float* output) const {
  if (!draw.augment || cutout_ == 0) return;
  const Random4 words = transform_words(index, draw, 11);
  const int64_t top = random_below(words.v[0], crop_.height()) - cutout_ / 2,
                left = random_below(words.v[1], crop_.width()) - cutout_ / 2;
  const int64_t begin = std::max<int64_t>(left, 0), end = std::min(left + cutout_, crop_.width());
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + cutout_, crop_.height()); ++y)
    std::fill(output + (y * crop_.width() + begin) * channels_, output + (y * crop_.width() + end) * channels_, 0.0f);
}

void ImageTransform::describe(Hasher& hasher) const {
  crop_.describe(hasher, channels_, cutout_);
  if (!jitter_.changes_nothing()) jitter_.describe(hasher);
  values_.describe(hasher);
}

}  // namespace elinvar
