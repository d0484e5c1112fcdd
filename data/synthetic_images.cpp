// Images that need no file, made in integer arithmetic. The pattern of a class is 5 x 5 random colours, scaled up to a
// quarter more than the image. A sample is a random window of its class's pattern, with a contrast of 3/4 to 1 and
// uniform noise. Sample i has class i % classes.
#include <algorithm>
#include <vector>

#include "data/image_source.h"
#include "data/resize.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr int64_t kGrid = 5;
constexpr int64_t kMostPatternBytes = int64_t{1} << 30;  // of all classes

int64_t side_of(const DataConfig& config) { return config.image_size == 0 ? 32 : config.image_size; }
int64_t pattern_side(const DataConfig& config) { return side_of(config) + side_of(config) / 4; }

class SyntheticImages final : public ImageSource {
 public:
  // Different values of `part` give different samples of the same classes.
  SyntheticImages(const DataConfig& config, uint32_t part, int64_t size)
      : key_(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_images")),
        part_(part),
        size_(size),
        side_(side_of(config)),
        channels_(config.channels),
        noise_(static_cast<int32_t>(config.noise * 255)) {
    const int64_t whole = pattern_side(config);
    for (int64_t k = 0; k < config.classes; ++k) {
      Image grid(kGrid, kGrid, channels_);
      for (size_t i = 0; i < grid.pixels.size(); ++i)
        grid.pixels[i] =
            static_cast<uint8_t>(philox(key_, 0, static_cast<uint32_t>(k), static_cast<uint32_t>(i), 0).v[0] >> 24);
      patterns_.push_back(resize(grid.view(), {0, 0, kGrid, kGrid}, whole, whole, {0, 0, whole, whole}));
      class_names_.push_back(fmt::format("pattern{}", k));
    }
  }

  int64_t size() const override { return size_; }
  int64_t label(int64_t i) const override { return i % classes(); }
  ImageView image(int64_t i, Image& scratch) const override {
    const auto words = [&](uint32_t block) {
      return philox(key_, 1 + part_, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), block);
    };
    const Image& pattern = patterns_[static_cast<size_t>(label(i))];
    const Random4 place = words(0);
    const auto places = static_cast<uint32_t>(pattern.width - side_ + 1);
    const int64_t top = place.v[0] % places, left = place.v[1] % places;
    const auto contrast = static_cast<int32_t>(192 + place.v[2] % 65);  // of 256

    scratch = Image(side_, side_, channels_);
    Random4 random{};
    for (size_t at = 0; at < scratch.pixels.size(); ++at) {
      if (at % 16 == 0) random = words(1 + static_cast<uint32_t>(at / 16));
      const auto byte = static_cast<int32_t>(random.v[at / 4 % 4] >> (8 * (at % 4)) & 0xFF);
      const int64_t y = static_cast<int64_t>(at) / (side_ * channels_),
                    rest = static_cast<int64_t>(at) % (side_ * channels_);
      const int32_t p =
          pattern.pixels[static_cast<size_t>((top + y) * pattern.width * channels_ + left * channels_ + rest)];
      const int32_t value = 128 + (((p - 128) * contrast) >> 8) + ((2 * byte - 255) * noise_) / 255;
      scratch.pixels[at] = static_cast<uint8_t>(std::clamp(value, 0, 255));
    }
    return scratch.view();
  }
  std::string where(int64_t i) const override { return fmt::format("synthetic image {}", i); }
  bool in_memory() const override { return false; }
  int64_t classes() const override { return static_cast<int64_t>(patterns_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  void describe(int64_t i, Hasher& hasher) const override {
    if (i > 0) return;  // the rest follows from the first
    for (int64_t v : {static_cast<int64_t>(key_), int64_t{part_}, size_, side_, channels_, int64_t{noise_}, classes()})
      hasher.add_integer(v);
  }

 private:
  uint64_t key_;
  uint32_t part_;
  int64_t size_, side_, channels_;
  int32_t noise_;
  std::vector<Image> patterns_;
  std::vector<std::string> class_names_;
};

}  // namespace

ImageParts open_synthetic_images(const DataConfig& config) {
  check_setting(config.size >= 1 && config.size <= kMostSynthetic, "data.size", "must be from 1 to {}, got {}",
                kMostSynthetic, config.size);
  check_setting(config.classes >= 1 && config.classes <= 100000, "data.classes", "must be from 1 to 100000, got {}",
                config.classes);
  check_setting(config.channels >= 1 && config.channels <= 16, "data.channels", "must be from 1 to 16, got {}",
                config.channels);
  check_setting(config.image_size >= 0 && config.image_size <= 4096, "data.image_size",
                "must be from 0 to 4096, got {}", config.image_size);
  check_setting(config.noise >= 0 && config.noise <= 1, "data.noise", "must be from 0 to 1, got {}", config.noise);
  const int64_t whole = pattern_side(config), pattern = whole * whole * config.channels;
  check_setting(config.classes <= kMostPatternBytes / pattern, "data.classes",
                "= {} with images of {} bytes takes {} bytes for their patterns, the most is {}", config.classes,
                side_of(config) * side_of(config) * config.channels, config.classes * pattern, kMostPatternBytes);
  const double share = config.validation_fraction > 0 ? config.validation_fraction : 0.1;
  const auto apart = std::max(config.classes, static_cast<int64_t>(static_cast<double>(config.size) * share));
  return {.training = [config] { return std::make_shared<SyntheticImages>(config, 0, config.size); },
          .validation = [config, apart] { return std::make_shared<SyntheticImages>(config, 1, apart); },
          .test = [config, apart] { return std::make_shared<SyntheticImages>(config, 2, apart); },
          .apart = true};
}

}  // namespace elinvar
