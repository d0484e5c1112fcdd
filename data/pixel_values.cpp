#include "data/pixel_values.h"

#include <cmath>

#include "tensor/base/setting.h"

namespace elinvar {

PixelValues::PixelValues(const DataConfig& config, const PixelStatistics& usual, int64_t channels)
    : channels_(channels) {
  const std::vector<double>& mean = config.mean.empty() ? usual.mean : config.mean;
  const std::vector<double>& std = config.std.empty() ? usual.std : config.std;
  const auto wanted = static_cast<size_t>(channels_);
  const auto check_count = [&](const char* key, const std::vector<double>& values) {
    check_setting(values.size() == wanted, key, "needs one value for each of {} channels, got {}", wanted,
                  values.size());
  };
  check_count("data.mean", mean);
  check_count("data.std", std);
  for (size_t c = 0; c < wanted; ++c) {
    const float m = static_cast<float>(mean[c]), s = static_cast<float>(std[c]);
    check_setting(std::isfinite(m), "data.mean", "must be finite, got {}", m);
    check_setting(std::isfinite(s) && s > 0, "data.std", "must be finite and positive, got {}", s);
    for (int p = 0; p < 256; ++p) value_.push_back((static_cast<float>(p) / 255.0f - m) / s);
  }
}

void PixelValues::write(const Image& image, float* output) const {
  const uint8_t* p = image.pixels.data();
  for (int64_t i = 0; i < image.height * image.width; ++i)
    for (int64_t c = 0; c < channels_; ++c) output[i * channels_ + c] = value_[static_cast<size_t>(c * 256 + *p++)];
}

void PixelValues::describe(Hasher& hasher) const { hasher.add(value_.data(), value_.size() * sizeof(float)); }

}  // namespace elinvar
