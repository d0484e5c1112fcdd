#include "data/synthetic_boxes.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "data/letterbox.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr uint32_t kMostShapes = 4;  // in an image
constexpr uint32_t kPlacements = 4;  // tries to place a shape beside the others; then it is left out
constexpr int64_t kGreyLevel = 128;

struct PlacedShape {
  int64_t label, y, x, h, w;

  bool overlaps(const PlacedShape& other) const {
    return y < other.y + other.h && other.y < y + h && x < other.x + other.w && other.x < x + w;
  }
  // Whether pixel (i, j) of its box is part of it.
  bool covers(int64_t i, int64_t j) const {
    const int64_t up = 2 * i + 1 - h, right = 2 * j + 1 - w;  // twice the distance from the centre
    if (label % 3 == 1) return up * up * w * w + right * right * h * h <= h * h * w * w;
    if (label % 3 == 2) return (std::abs(right) - 1) * (h - 1) <= (w - 1) * i;
    return true;
  }
};

class SyntheticBoxes final : public Dataset {
 public:
  // Different values of `part` give different images of the same classes.
  SyntheticBoxes(const DataConfig& config, uint32_t part, int64_t size)
      : key_(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_boxes")),
        part_(part),
        size_(size),
        side_(config.image_size == 0 ? 64 : config.image_size),
        classes_(config.classes),
        rows_(config.boxes),
        noise_(static_cast<int64_t>(config.noise * 255)) {
    for (int64_t k = 0; k < classes_; ++k)
      for (uint32_t c = 0; c < 3; ++c) {
        const uint32_t word = philox(key_, 0, static_cast<uint32_t>(k), c, 0).v[0];
        colours_.push_back((word >> 31 != 0 ? 192 : 0) + static_cast<int64_t>(word & 63));
      }
  }

  int64_t size() const override { return size_; }
  SampleFormat format() const override {
    return {.inputs = {{{side_, side_, 3}, DType::f32}}, .target = {{rows_, kBoxTargetNumbers}, DType::f32}};
  }
  int64_t classes() const override { return classes_; }

  void read(int64_t index, const Draw&, const SampleBuffers& sample) const override {
    const auto words = [&](uint32_t block) {
      return philox(key_, 1 + part_, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block);
    };
    std::vector<PlacedShape> shapes;
    const auto wanted = 1 + static_cast<uint32_t>(random_below(words(0).v[0], kMostShapes));
    for (uint32_t s = 0; s < wanted; ++s) {
      for (uint32_t t = 0; t < kPlacements; ++t) {
        const uint32_t block = 1 + 2 * (s * kPlacements + t);
        const PlacedShape shape = placed(words(block), words(block + 1));
        if (std::ranges::any_of(shapes, [&](const PlacedShape& other) { return shape.overlaps(other); })) continue;
        shapes.push_back(shape);
        break;
      }
    }
    std::vector<int64_t> image(static_cast<size_t>(side_ * side_ * 3), kGreyLevel);
    std::vector<ImageBox> boxes;
    for (const PlacedShape& shape : shapes) {
      for (int64_t at = 0; at < shape.h * shape.w; ++at)
        if (const int64_t i = at / shape.w, j = at % shape.w; shape.covers(i, j))
          std::copy_n(colours_.begin() + 3 * shape.label, 3, image.begin() + 3 * ((shape.y + i) * side_ + shape.x + j));
      const auto edge = [](int64_t pixel) { return static_cast<double>(pixel); };
      boxes.push_back({shape.label, edge(shape.x), edge(shape.y), edge(shape.x + shape.w), edge(shape.y + shape.h)});
    }
    write_box_targets(boxes, static_cast<double>(side_), sample.target<float>(), rows_);
    auto* const pixels = sample.input<float>();
    Random4 random{};
    for (size_t at = 0; at < image.size(); ++at) {
      if (at % 16 == 0) random = words(1 + 2 * kMostShapes * kPlacements + static_cast<uint32_t>(at / 16));
      const auto byte = static_cast<int64_t>(random.v[at / 4 % 4] >> (8 * (at % 4)) & 0xFF);
      const int64_t value = std::clamp<int64_t>(image[at] + (2 * byte - 255) * noise_ / 255, 0, 255);
      pixels[at] = static_cast<float>(value - kGreyLevel) * 0x1p-6f;  // exact
    }
  }

  void describe(Hasher& hasher) const override {
    for (const int64_t v : {static_cast<int64_t>(key_), int64_t{part_}, size_, side_, classes_, rows_, noise_})
      hasher.add_integer(v);
  }

 private:
  PlacedShape placed(const Random4& form, const Random4& place) const {
    const int64_t least = side_ / 6, more = side_ / 2 - least + 1;
    const int64_t h = least + random_below(form.v[1], more), w = least + random_below(form.v[2], more);
    return {random_below(form.v[0], classes_), random_below(place.v[0], side_ - h + 1),
            random_below(place.v[1], side_ - w + 1), h, w};
  }

  uint64_t key_;
  uint32_t part_;
  int64_t size_, side_, classes_, rows_, noise_;
  std::vector<int64_t> colours_;
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic_boxes(const DataConfig& config, Split split) {
  check_setting(config.size >= 1 && config.size <= kMostSynthetic, "data.size", "must be from 1 to {}, got {}",
                kMostSynthetic, config.size);
  check_setting(config.classes >= 1 && config.classes <= 1000, "data.classes", "must be from 1 to 1000, got {}",
                config.classes);
  check_setting(config.channels == 3, "data.channels", "must be 3, got {}", config.channels);
  check_setting(config.image_size == 0 || (config.image_size >= 16 && config.image_size <= 4096), "data.image_size",
                "must be 0 or from 16 to 4096, got {}", config.image_size);
  check_setting(config.boxes >= kMostShapes && config.boxes <= kMostBoxesOfSample, "data.boxes",
                "must be from {} to {}, got {}", kMostShapes, kMostBoxesOfSample, config.boxes);
  check_setting(config.noise >= 0 && config.noise <= 1, "data.noise", "must be from 0 to 1, got {}", config.noise);
  refuse_augmentation_of_labels(config, /*flips_and_colours=*/false);
  const double share = config.validation_fraction > 0 ? config.validation_fraction : 0.1;
  const auto apart = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(config.size) * share));
  const uint32_t part = split == Split::train ? 0 : split == Split::validation ? 1 : 2;
  return std::make_unique<SyntheticBoxes>(config, part, split == Split::train ? config.size : apart);
}

}  // namespace elinvar
