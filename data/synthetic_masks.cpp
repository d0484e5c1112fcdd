#include "data/synthetic_masks.h"

#include <algorithm>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr uint32_t kThings = 4;  // in an image

class SyntheticMasks final : public Dataset {
 public:
  // Different values of `part` give different images of the same classes.
  SyntheticMasks(const DataConfig& config, uint32_t part, int64_t size)
      : key_(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_masks")),
        part_(part),
        size_(size),
        side_(config.image_size == 0 ? 32 : config.image_size),
        channels_(config.channels),
        classes_(config.classes),
        noise_(static_cast<int32_t>(config.noise * 255)) {
    for (int64_t k = 0; k < classes_; ++k)
      for (int64_t c = 0; c < channels_; ++c)
        colours_.push_back(
            static_cast<int32_t>(philox(key_, 0, static_cast<uint32_t>(k), static_cast<uint32_t>(c), 0).v[0] >> 24));
  }

  int64_t size() const override { return size_; }
  SampleFormat format() const override {
    return {.inputs = {{{side_, side_, channels_}, DType::f32}}, .target = {{side_, side_}, DType::i64}};
  }
  int64_t classes() const override { return classes_; }

  void read(int64_t index, const Draw&, const SampleBuffers& sample) const override {
    const auto words = [&](uint32_t block) {
      return philox(key_, 1 + part_, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block);
    };
    auto* const mask = sample.target<int64_t>();
    std::fill_n(mask, side_ * side_, 0);
    for (uint32_t thing = 0; thing < kThings; ++thing) draw_thing(words(2 * thing), words(2 * thing + 1), mask);
    auto* const pixels = sample.input<float>();
    Random4 random{};
    for (int64_t at = 0; at < side_ * side_ * channels_; ++at) {
      if (at % 16 == 0) random = words(2 * kThings + static_cast<uint32_t>(at / 16));
      const auto byte = static_cast<int32_t>(random.v[at / 4 % 4] >> (8 * (at % 4)) & 0xFF);
      const int32_t colour = colours_[static_cast<size_t>(mask[at / channels_] * channels_ + at % channels_)];
      const int32_t value = std::clamp(colour + ((2 * byte - 255) * noise_) / 255, 0, 255);
      pixels[at] = static_cast<float>(value - 128) * 0x1p-6f;  // exact
    }
  }

  void describe(Hasher& hasher) const override {
    for (const int64_t v :
         {static_cast<int64_t>(key_), int64_t{part_}, size_, side_, channels_, classes_, int64_t{noise_}})
      hasher.add_integer(v);
  }

 private:
  void draw_thing(const Random4& place, const Random4& form, int64_t* mask) const {
    const int64_t y = random_below(place.v[0], side_), x = random_below(place.v[1], side_);
    const int64_t h = 2 + random_below(place.v[2], side_ / 3), w = 2 + random_below(place.v[3], side_ / 3);
    const int64_t label = random_below(form.v[0], classes_);
    const bool disc = (form.v[1] >> 31) != 0;
    for (int64_t i = std::max<int64_t>(0, y - h); i < std::min(side_, y + h); ++i)
      for (int64_t j = std::max<int64_t>(0, x - w); j < std::min(side_, x + w); ++j)
        if (!disc || (i - y) * (i - y) * w * w + (j - x) * (j - x) * h * h < h * h * w * w) mask[i * side_ + j] = label;
  }

  uint64_t key_;
  uint32_t part_;
  int64_t size_, side_, channels_, classes_;
  int32_t noise_;
  std::vector<int32_t> colours_;
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic_masks(const DataConfig& config, Split split) {
  check_setting(config.size >= 1 && config.size <= kMostSynthetic, "data.size", "must be from 1 to {}, got {}",
                kMostSynthetic, config.size);
  check_setting(config.classes >= 2 && config.classes <= 1000, "data.classes", "must be from 2 to 1000, got {}",
                config.classes);
  check_setting(config.channels >= 1 && config.channels <= 16, "data.channels", "must be from 1 to 16, got {}",
                config.channels);
  check_setting(config.image_size == 0 || (config.image_size >= 8 && config.image_size <= 4096), "data.image_size",
                "must be 0 or from 8 to 4096, got {}", config.image_size);
  check_setting(config.noise >= 0 && config.noise <= 1, "data.noise", "must be from 0 to 1, got {}", config.noise);
  const double share = config.validation_fraction > 0 ? config.validation_fraction : 0.1;
  const auto apart = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(config.size) * share));
  const uint32_t part = split == Split::train ? 0 : split == Split::validation ? 1 : 2;
  return std::make_unique<SyntheticMasks>(config, part, split == Split::train ? config.size : apart);
}

}  // namespace elinvar
