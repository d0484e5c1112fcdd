#include "data/transform.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

Random4 random_words(int64_t index, const Draw& draw, uint32_t block) {
  return philox(draw.seed ^ key_of("data.transform"), static_cast<uint32_t>(draw.epoch), static_cast<uint32_t>(index),
                static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), block);
}

double uniform(uint32_t word) { return static_cast<double>(word >> 8) * 0x1p-24; }

int64_t nearest(double x) { return static_cast<int64_t>(std::floor(x + 0.5)); }

// Returns the index of the pixel at `at` in a line of n pixels that is mirrored at its first and last; -n < at < 2 n
// - 1.
int64_t reflected(int64_t at, int64_t n) { return at < 0 ? -at : at >= n ? 2 * n - 2 - at : at; }

}  // namespace

ImageTransform::ImageTransform(const DataConfig& config, const ImageView& stored, const PixelStatistics& usual)
    : as_stored_(config.image_size == 0),
      random_part_(config.random_resized_crop),
      flip_(config.flip),
      alternate_flip_(config.alternate_flip),
      reflect_(config.padding_mode == "reflect"),
      size_h_(as_stored_ ? stored.height : config.image_size),
      size_w_(as_stored_ ? stored.width : config.image_size),
      channels_(stored.channels),
      shorter_(config.resize == 0 ? config.image_size : config.resize),
      padding_(config.crop_padding),
      cutout_(config.cutout),
      area_min_(config.crop_area_min),
      jitter_(config.brightness, config.contrast, config.saturation, config.hue, channels_),
      values_(config, usual, channels_) {
  check_setting(config.image_size >= 0 && config.image_size <= 1 << 14, "data.image_size",
                "must be from 0 to 16384, got {}", config.image_size);
  check_setting(config.resize == 0 || config.resize >= config.image_size, "data.resize",
                "= {} must not be less than image_size = {}, which is cropped from it", config.resize,
                config.image_size);
  check_setting(config.resize <= 1 << 14, "data.resize", "must be at most 16384, got {}", config.resize);
  check_setting(!as_stored_ || config.resize == 0, "data.resize", "= {} needs an image_size to crop to", config.resize);
  check_setting(!as_stored_ || !random_part_, "data.random_resized_crop", "needs an image_size to scale to");
  check_setting(padding_ >= 0 && padding_ <= 1 << 14, "data.crop_padding", "must be from 0 to 16384, got {}", padding_);
  check_setting(!random_part_ || padding_ == 0, "data.crop_padding", "and random_resized_crop exclude each other");
  check_setting(reflect_ || config.padding_mode == "black", "data.padding_mode",
                "must be \"black\" or \"reflect\", got \"{}\"", config.padding_mode);
  check_setting(!reflect_ || 2 * padding_ < std::min(size_h_, size_w_), "data.crop_padding",
                "= {} is too wide to be reflected: it must be less than half of the image's {}", padding_,
                std::min(size_h_, size_w_));
  check_setting(flip_ || !alternate_flip_, "data.alternate_flip", "needs flip = true");
  check_setting(cutout_ >= 0 && cutout_ <= 1 << 14, "data.cutout", "must be from 0 to 16384, got {}", cutout_);
  check_setting(area_min_ > 0 && area_min_ <= 1, "data.crop_area_min", "must be in (0, 1], got {}", area_min_);
}

void ImageTransform::operator()(const ImageView& image, int64_t index, const Draw& draw,
                                const std::function<std::string()>& where, float* output) const {
  if (image.channels != channels_ || image.height < 1 || image.width < 1)
    fail("[data] '{}' is {} x {} x {}, expected {} channels", where(), image.height, image.width, image.channels,
         channels_);
  const Random4 words = random_words(index, draw, 0);
  const bool mirrored = is_mirrored(index, draw, words.v[2]);
  if (draw.augment && random_part_)
    return finish(cut(scaled_random_part(image, index, draw).view(), 0, 0, mirrored), index, draw, output);

  int64_t height = image.height, width = image.width;
  if (as_stored_) {
    if (height != size_h_ || width != size_w_)
      fail("[data] '{}' is {} x {}, the first image {} x {}: set data.image_size to bring them to one size", where(),
           height, width, size_h_, size_w_);
  } else {
    const int64_t side = std::min(height, width);
    height = std::max(shorter_,
                      nearest(static_cast<double>(height) * static_cast<double>(shorter_) / static_cast<double>(side)));
    width = std::max(shorter_,
                     nearest(static_cast<double>(width) * static_cast<double>(shorter_) / static_cast<double>(side)));
  }
  int64_t top = (height - size_h_) / 2, left = (width - size_w_) / 2;
  if (draw.augment) {
    top = random_below(words.v[0], height - size_h_ + 2 * padding_ + 1) - padding_;
    left = random_below(words.v[1], width - size_w_ + 2 * padding_ + 1) - padding_;
  }
  if (height == image.height && width == image.width)
    return finish(cut(image, top, left, mirrored), index, draw, output);

  const int64_t y = std::clamp<int64_t>(top, 0, height - 1), x = std::clamp<int64_t>(left, 0, width - 1);
  const int64_t bottom = std::clamp<int64_t>(top + size_h_, y + 1, height),
                right = std::clamp<int64_t>(left + size_w_, x + 1, width);
  const Image scaled = resize(image, {0, 0, image.height, image.width}, height, width, {y, x, bottom - y, right - x});
  finish(cut(scaled.view(), top - y, left - x, mirrored), index, draw, output);
}

bool ImageTransform::is_mirrored(int64_t index, const Draw& draw, uint32_t word) const {
  if (!draw.augment || !flip_) return false;
  if (!alternate_flip_) return (word & 1) != 0;
  return ((random_words(index, {.seed = draw.seed}, 12).v[0] ^ static_cast<uint64_t>(draw.epoch)) & 1) != 0;
}

Image ImageTransform::scaled_random_part(const ImageView& image, int64_t index, const Draw& draw) const {
  const int64_t side = std::min(image.height, image.width);
  Rect part{(image.height - side) / 2, (image.width - side) / 2, side, side};
  for (uint32_t attempt = 0; attempt < 10; ++attempt) {
    const Random4 words = random_words(index, draw, 1 + attempt);
    const double area = (area_min_ + (1.0 - area_min_) * uniform(words.v[0])) *
                        (static_cast<double>(image.height) * static_cast<double>(image.width));
    const double aspect = 1.0 + uniform(words.v[1]) / 3.0;
    int64_t h = nearest(std::sqrt(area / aspect)), w = nearest(std::sqrt(area * aspect));
    if (words.v[1] & 1) std::swap(h, w);
    if (h < 1 || w < 1 || h > image.height || w > image.width) continue;
    part = {random_below(words.v[2], image.height - h + 1), random_below(words.v[3], image.width - w + 1), h, w};
    break;
  }
  return resize(image, part, size_h_, size_w_, {0, 0, size_h_, size_w_});
}

// Returns the (size_h_, size_w_) window with its corner at (top, left). Outside the image it is black, or reflected.
Image ImageTransform::cut(const ImageView& image, int64_t top, int64_t left, bool mirrored) const {
  Image square(size_h_, size_w_, channels_);
  uint8_t* to = square.pixels.data();
  const bool whole_rows = left >= 0 && left + size_w_ <= image.width && !mirrored;
  for (int64_t y = 0; y < size_h_; ++y) {
    const int64_t row = reflect_ ? reflected(top + y, image.height) : top + y;
    const bool row_inside = row >= 0 && row < image.height;
    if (whole_rows && row_inside) {
      to = std::copy_n(image.pixels + (row * image.width + left) * channels_, size_w_ * channels_, to);
      continue;
    }
    for (int64_t x = 0; x < size_w_; ++x, to += channels_) {
      const int64_t place = left + (mirrored ? size_w_ - 1 - x : x);
      const int64_t column = reflect_ ? reflected(place, image.width) : place;
      if (row_inside && column >= 0 && column < image.width)
        std::copy_n(image.pixels + (row * image.width + column) * channels_, channels_, to);
    }
  }
  return square;
}

void ImageTransform::finish(Image square, int64_t index, const Draw& draw, float* output) const {
  if (draw.augment && !jitter_.changes_nothing())
    jitter_(square, random_words(index, draw, 13), random_words(index, draw, 14).v[0]);
  values_.write(square, output);
  cut_out(index, draw, output);
}

// Writes zeros, the mean colour of normalised values.
void ImageTransform::cut_out(int64_t index, const Draw& draw, float* output) const {
  if (!draw.augment || cutout_ == 0) return;
  const Random4 words = random_words(index, draw, 11);
  const int64_t top = random_below(words.v[0], size_h_) - cutout_ / 2,
                left = random_below(words.v[1], size_w_) - cutout_ / 2;
  const int64_t begin = std::max<int64_t>(left, 0), end = std::min(left + cutout_, size_w_);
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + cutout_, size_h_); ++y)
    std::fill(output + (y * size_w_ + begin) * channels_, output + (y * size_w_ + end) * channels_, 0.0f);
}

void ImageTransform::describe(Hasher& hasher) const {
  for (int64_t v : {int64_t{as_stored_}, int64_t{random_part_}, int64_t{flip_}, int64_t{alternate_flip_},
                    int64_t{reflect_}, size_h_, size_w_, channels_, shorter_, padding_, cutout_})
    hasher.add_integer(v);
  hasher.add(&area_min_, sizeof area_min_);
  if (!jitter_.changes_nothing()) jitter_.describe(hasher);
  values_.describe(hasher);
}

}  // namespace elinvar
