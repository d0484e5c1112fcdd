#include "data/crop.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {
namespace {

double uniform(uint32_t word) { return static_cast<double>(word >> 8) * 0x1p-24; }

int64_t nearest(double x) { return static_cast<int64_t>(std::floor(x + 0.5)); }

// Returns the index of the pixel at `at` in a line of n pixels that is mirrored at its first and last; -n < at < 2 n
// - 1.
int64_t reflected(int64_t at, int64_t n) { return at < 0 ? -at : at >= n ? 2 * n - 2 - at : at; }

}  // namespace

Random4 transform_words(int64_t index, const Draw& draw, uint32_t block) {
  return philox(draw.seed ^ key_of("data.transform"), static_cast<uint32_t>(draw.epoch), static_cast<uint32_t>(index),
                static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), block);
}

Cropper::Cropper(const DataConfig& config, const ImageView& stored)
    : as_stored_(config.image_size == 0),
      random_part_(config.random_resized_crop),
      flip_(config.flip),
      alternate_flip_(config.alternate_flip),
      reflect_(config.padding_mode == "reflect"),
      size_h_(as_stored_ ? stored.height : config.image_size),
      size_w_(as_stored_ ? stored.width : config.image_size),
      shorter_(config.resize == 0 ? config.image_size : config.resize),
      padding_(config.crop_padding),
      area_min_(config.crop_area_min) {
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
  check_setting(area_min_ > 0 && area_min_ <= 1, "data.crop_area_min", "must be in (0, 1], got {}", area_min_);
}

Crop Cropper::choose(const ImageView& image, int64_t index, const Draw& draw,
                     const std::function<std::string()>& where) const {
  const Random4 words = transform_words(index, draw, 0);
  Crop crop{.part = {0, 0, image.height, image.width}, .height = image.height, .width = image.width};
  if (draw.augment && random_part_) {
    crop = random_part(image, index, draw);
  } else {
    if (as_stored_) {
      if (crop.height != size_h_ || crop.width != size_w_)
        fail("[data] '{}' is {} x {}, the first image {} x {}: set data.image_size to bring them to one size", where(),
             crop.height, crop.width, size_h_, size_w_);
    } else {
      const auto side = static_cast<double>(std::min(image.height, image.width)),
                 shorter = static_cast<double>(shorter_);
      crop.height = std::max(shorter_, nearest(static_cast<double>(image.height) * shorter / side));
      crop.width = std::max(shorter_, nearest(static_cast<double>(image.width) * shorter / side));
    }
    crop.top = (crop.height - size_h_) / 2;
    crop.left = (crop.width - size_w_) / 2;
    if (draw.augment) {
      crop.top = random_below(words.v[0], crop.height - size_h_ + 2 * padding_ + 1) - padding_;
      crop.left = random_below(words.v[1], crop.width - size_w_ + 2 * padding_ + 1) - padding_;
    }
  }
  crop.mirrored = is_mirrored(index, draw, words.v[2]);
  return crop;
}

bool Cropper::is_mirrored(int64_t index, const Draw& draw, uint32_t word) const {
  if (!draw.augment || !flip_) return false;
  if (!alternate_flip_) return (word & 1) != 0;
  return ((transform_words(index, {.seed = draw.seed}, 12).v[0] ^ static_cast<uint64_t>(draw.epoch)) & 1) != 0;
}

Crop Cropper::random_part(const ImageView& image, int64_t index, const Draw& draw) const {
  const int64_t side = std::min(image.height, image.width);
  Crop crop{
      .part = {(image.height - side) / 2, (image.width - side) / 2, side, side}, .height = size_h_, .width = size_w_};
  for (uint32_t attempt = 0; attempt < 10; ++attempt) {
    const Random4 words = transform_words(index, draw, 1 + attempt);
    const double area = (area_min_ + (1.0 - area_min_) * uniform(words.v[0])) *
                        (static_cast<double>(image.height) * static_cast<double>(image.width));
    const double aspect = 1.0 + uniform(words.v[1]) / 3.0;
    int64_t h = nearest(std::sqrt(area / aspect)), w = nearest(std::sqrt(area * aspect));
    if (words.v[1] & 1) std::swap(h, w);
    if (h < 1 || w < 1 || h > image.height || w > image.width) continue;
    crop.part = {random_below(words.v[2], image.height - h + 1), random_below(words.v[3], image.width - w + 1), h, w};
    break;
  }
  return crop;
}

Image Cropper::cut(const ImageView& image, const Crop& crop) const {
  if (crop.part.height == image.height && crop.part.width == image.width && crop.height == image.height &&
      crop.width == image.width)
    return window(image, crop.top, crop.left, crop.mirrored);
  const int64_t y = std::clamp<int64_t>(crop.top, 0, crop.height - 1),
                x = std::clamp<int64_t>(crop.left, 0, crop.width - 1);
  const int64_t bottom = std::clamp<int64_t>(crop.top + size_h_, y + 1, crop.height),
                right = std::clamp<int64_t>(crop.left + size_w_, x + 1, crop.width);
  const Image scaled = resize(image, crop.part, crop.height, crop.width, {y, x, bottom - y, right - x});
  return window(scaled.view(), crop.top - y, crop.left - x, crop.mirrored);
}

// Returns the (size_h_, size_w_) window with its corner at (top, left). Outside the image it is black, or reflected.
Image Cropper::window(const ImageView& image, int64_t top, int64_t left, bool mirrored) const {
  const int64_t channels = image.channels;
  Image square(size_h_, size_w_, channels);
  uint8_t* to = square.pixels.data();
  const bool whole_rows = left >= 0 && left + size_w_ <= image.width && !mirrored;
  for (int64_t y = 0; y < size_h_; ++y) {
    const int64_t row = reflect_ ? reflected(top + y, image.height) : top + y;
    const bool row_inside = row >= 0 && row < image.height;
    if (whole_rows && row_inside) {
      to = std::copy_n(image.pixels + (row * image.width + left) * channels, size_w_ * channels, to);
      continue;
    }
    for (int64_t x = 0; x < size_w_; ++x, to += channels) {
      const int64_t place = left + (mirrored ? size_w_ - 1 - x : x);
      const int64_t column = reflect_ ? reflected(place, image.width) : place;
      if (row_inside && column >= 0 && column < image.width)
        std::copy_n(image.pixels + (row * image.width + column) * channels, channels, to);
    }
  }
  return square;
}

void Cropper::each_nearest(const ImageView& image, const Crop& crop,
                           const std::function<void(int64_t at, const uint8_t* pixel)>& f) const {
  // Returns the stored place of pixel i of n along a side, or -1 outside.
  const auto stored = [&](int64_t i, int64_t n, int64_t begin, int64_t length) {
    const int64_t inside = reflect_ ? reflected(i, n) : i;
    return inside < 0 || inside >= n ? -1 : begin + (2 * inside + 1) * length / (2 * n);
  };
  for (int64_t y = 0; y < size_h_; ++y) {
    const int64_t row = stored(crop.top + y, crop.height, crop.part.y, crop.part.height);
    for (int64_t x = 0; x < size_w_; ++x) {
      const int64_t place = crop.left + (crop.mirrored ? size_w_ - 1 - x : x),
                    column = stored(place, crop.width, crop.part.x, crop.part.width);
      const bool outside = row < 0 || column < 0;
      f(y * size_w_ + x, outside ? nullptr : image.pixels + (row * image.width + column) * image.channels);
    }
  }
}

int64_t Cropper::shown_at(const Crop& crop, int64_t y, int64_t x) const {
  const int64_t row = (2 * y + 1) * crop.height / (2 * crop.part.height) - crop.top,
                column = (2 * x + 1) * crop.width / (2 * crop.part.width) - crop.left;
  const bool inside = row >= 0 && row < size_h_ && column >= 0 && column < size_w_;
  return inside ? row * size_w_ + column : -1;
}

void Cropper::describe(Hasher& hasher, int64_t channels, int64_t cutout) const {
  for (int64_t v : {int64_t{as_stored_}, int64_t{random_part_}, int64_t{flip_}, int64_t{alternate_flip_},
                    int64_t{reflect_}, size_h_, size_w_, channels, shorter_, padding_, cutout})
    hasher.add_integer(v);
  hasher.add(&area_min_, sizeof area_min_);
}

}  // namespace elinvar
