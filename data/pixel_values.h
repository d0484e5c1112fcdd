#pragma once
// Converts pixels to the values that a network gets: (p / 255 - mean) / std for each channel, three float32 operations.
#include <vector>

#include "data/dataset.h"
#include "data/image.h"
#include "data/image_source.h"

namespace elinvar {

class PixelValues {
 public:
  // `usual` replaces an empty mean and std of the configuration. Throws SettingError for invalid ones.
  PixelValues(const DataConfig& config, const PixelStatistics& usual, int64_t channels);

  int64_t channels() const { return channels_; }
  void write(const Image& image, float* output) const;  // (H, W, C)
  void describe(Hasher& hasher) const;

 private:
  int64_t channels_;
  std::vector<float> value_;  // (channels, 256): of each byte
};

}  // namespace elinvar
