#pragma once
// The factors with which the CPU bodies of ops/quantize.h round rows and channels, as loops over elements need them.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/ops/quantize.h"

namespace elinvar {

inline constexpr int64_t kQuantizePiece = 1 << 15;  // elements that a thread takes at a time

// Factors 2^(against - most), and most.
struct RelativeScales {
  std::vector<float> scale;
  int32_t most = 0;
  RelativeScales(const In& against, int64_t count) : scale(static_cast<size_t>(count)) {
    const auto* e = against.as<int32_t>();
    if (!scale.empty()) most = *std::max_element(e, e + scale.size());
    for (size_t i = 0; i < scale.size(); ++i) scale[i] = relative_scale(e[i], most);
  }
};

// Repeats `scale`, of the channels, for whole positions of at least so many elements that loops over them are long.
inline std::vector<float> repeated_scales(const std::vector<float>& scale, int64_t positions) {
  const auto channels = static_cast<int64_t>(scale.size());
  const int64_t times = std::clamp<int64_t>(512 / std::max<int64_t>(channels, 1), 1, std::max<int64_t>(positions, 1));
  std::vector<float> all;
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), scale.begin(), scale.end());
  return all;
}

inline std::vector<float> repeated_scales(const In& of_channels, int64_t channels, int64_t positions) {
  const auto* begin = of_channels.as<float>();
  return begin ? repeated_scales(std::vector<float>(begin, begin + channels), positions) : std::vector<float>();
}

// The scales of the channels of a weight's groups, repeated_scales(), from the exponents of all channels.
inline std::vector<std::vector<float>> group_scales(const int32_t* exponents, int64_t groups, int64_t channels,
                                                    int64_t taps) {
  std::vector<std::vector<float>> scales;
  for (int64_t g = 0; g < groups; ++g, exponents += channels) {
    std::vector<float> scale(static_cast<size_t>(channels));
    std::transform(exponents, exponents + channels, scale.begin(), [](int32_t e) { return power_of_two(-e); });
    scales.push_back(repeated_scales(scale, taps));
  }
  return scales;
}

}  // namespace elinvar
