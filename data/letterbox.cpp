#include "data/letterbox.h"

#include <algorithm>
#include <cmath>

#include "data/resize.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr uint8_t kGrey = 128;

int64_t scaled_side(int64_t side, int64_t to, int64_t longer) {
  const double exact = static_cast<double>(side) * static_cast<double>(to) / static_cast<double>(longer);
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(exact + 0.5)));
}

void mirror_rows(Image& image) {
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width / 2; ++x) {
      uint8_t* const row = image.pixels.data() + y * image.width * image.channels;
      std::swap_ranges(row + x * image.channels, row + (x + 1) * image.channels,
                       row + (image.width - 1 - x) * image.channels);
    }
}

}  // namespace

Letterbox::Letterbox(const DataConfig& config, const PixelStatistics& usual)
    : side_(config.image_size),
      flip_(config.flip),
      jitter_(config.brightness, config.contrast, config.saturation, config.hue, 3),
      values_(config, usual, 3) {
  check_setting(side_ >= 8 && side_ <= 1 << 14, "data.image_size",
                "must be from 8 to 16384, the side of the square into which images with boxes are put, got {}", side_);
  refuse_augmentation_of_labels(config, /*flips_and_colours=*/true);
}

Letterbox::Placement Letterbox::placement(int64_t height, int64_t width) const {
  const int64_t longer = std::max(height, width);
  Placement p;
  p.height = scaled_side(height, side_, longer);
  p.width = scaled_side(width, side_, longer);
  p.top = (side_ - p.height) / 2;
  p.left = (side_ - p.width) / 2;
  p.across = static_cast<double>(p.width) / static_cast<double>(width);
  p.down = static_cast<double>(p.height) / static_cast<double>(height);
  return p;
}

void Letterbox::operator()(const ImageView& image, std::span<const ImageBox> boxes, int64_t index, const Draw& draw,
                           float* pixels, float* targets, int64_t rows) const {
  const auto words = [&](uint32_t block) {
    return philox(draw.seed ^ key_of("data.letterbox"), static_cast<uint32_t>(draw.epoch), static_cast<uint32_t>(index),
                  static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), block);
  };
  const Placement p = placement(image.height, image.width);
  const Image scaled = resize(image, {0, 0, image.height, image.width}, p.height, p.width, {0, 0, p.height, p.width});
  Image square(side_, side_, 3);
  std::ranges::fill(square.pixels, kGrey);
  for (int64_t y = 0; y < p.height; ++y)
    std::copy_n(scaled.pixels.data() + y * p.width * 3, p.width * 3,
                square.pixels.data() + ((p.top + y) * side_ + p.left) * 3);
  const bool mirrored = draw.augment && flip_ && (words(0).v[0] & 1) != 0;
  if (mirrored) mirror_rows(square);
  if (draw.augment && !jitter_.changes_nothing()) jitter_(square, words(1), words(2).v[0]);
  values_.write(square, pixels);

  const auto x0 = static_cast<double>(p.left), y0 = static_cast<double>(p.top), side = static_cast<double>(side_);
  std::vector<ImageBox> moved;
  for (const ImageBox& b : boxes) {
    ImageBox to{b.label, x0 + b.x1 * p.across, y0 + b.y1 * p.down, x0 + b.x2 * p.across, y0 + b.y2 * p.down};
    if (mirrored) to = {b.label, side - to.x2, to.y1, side - to.x1, to.y2};
    moved.push_back(to);
  }
  write_box_targets(moved, side, targets, rows);
}

ImageBox Letterbox::in_image(const ImageBox& box, int64_t height, int64_t width) const {
  const Placement p = placement(height, width);
  const auto back = [&](double share, int64_t before, double scale, int64_t most) {
    const double pixel = (share * static_cast<double>(side_) - static_cast<double>(before)) / scale;
    return std::clamp(pixel, 0.0, static_cast<double>(most));
  };
  return {box.label, back(box.x1, p.left, p.across, width), back(box.y1, p.top, p.down, height),
          back(box.x2, p.left, p.across, width), back(box.y2, p.top, p.down, height)};
}

void Letterbox::describe(Hasher& hasher) const {
  hasher.add(std::string_view("letterbox"));
  hasher.add_integer(side_);
  hasher.add_integer(int64_t{flip_});
  if (!jitter_.changes_nothing()) jitter_.describe(hasher);
  values_.describe(hasher);
}

void write_box_targets(std::span<const ImageBox> boxes, double side, float* targets, int64_t rows) {
  std::fill_n(targets, rows * kBoxTargetNumbers, 0.0f);
  for (int64_t i = 0; i < rows; ++i, targets += kBoxTargetNumbers) {
    targets[0] = -1;
    if (i >= std::ssize(boxes)) continue;
    const ImageBox& b = boxes[static_cast<size_t>(i)];
    targets[0] = static_cast<float>(b.label);
    targets[1] = static_cast<float>((b.x1 + b.x2) / (2 * side));
    targets[2] = static_cast<float>((b.y1 + b.y2) / (2 * side));
    targets[3] = static_cast<float>((b.x2 - b.x1) / side);
    targets[4] = static_cast<float>((b.y2 - b.y1) / side);
  }
}

void refuse_augmentation_of_labels(const DataConfig& config, bool flips_and_colours) {
  const auto refuse = [&](bool given, const char* key) {
    check_setting(!given, key, "does not apply to data of kind '{}'", config.kind);
  };
  refuse(config.resize != 0, "data.resize");
  refuse(config.crop_padding != 0, "data.crop_padding");
  refuse(config.alternate_flip, "data.alternate_flip");
  refuse(config.cutout != 0, "data.cutout");
  refuse(config.random_resized_crop, "data.random_resized_crop");
  if (flips_and_colours) return;
  refuse(config.flip, "data.flip");
  for (const auto& [amount, key] : {std::pair(config.brightness, "data.brightness"),
                                    {config.contrast, "data.contrast"},
                                    {config.saturation, "data.saturation"},
                                    {config.hue, "data.hue"}})
    refuse(amount != 0, key);
}

}  // namespace elinvar
