#include "data/color_jitter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr int32_t kOne = 1 << 16, kHalf = kOne / 2;

int32_t grey_of(const uint8_t* p, int64_t channels) {
  return channels == 3 ? (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + kHalf) >> 16 : p[0];
}

// Returns f p + (1 - f) base; with f up to 9 and bytes this fits 32 bits.
uint8_t blended(int32_t p, int32_t base, int32_t f) {
  return static_cast<uint8_t>(std::clamp((f * p + (kOne - f) * base + kHalf) >> 16, 0, 255));
}

void scale_brightness(Image& image, int32_t f) {
  std::array<uint8_t, 256> scaled;
  for (int32_t p = 0; p < 256; ++p) scaled[static_cast<size_t>(p)] = blended(p, 0, f);
  for (uint8_t& p : image.pixels) p = scaled[p];
}

void scale_contrast(Image& image, int32_t f) {
  const int64_t count = image.height * image.width;
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += grey_of(image.pixels.data() + i * image.channels, image.channels);
  const auto mean = static_cast<int32_t>((2 * sum + count) / (2 * count));
  std::array<uint8_t, 256> scaled;
  for (int32_t p = 0; p < 256; ++p) scaled[static_cast<size_t>(p)] = blended(p, mean, f);
  for (uint8_t& p : image.pixels) p = scaled[p];
}

void scale_saturation(Image& image, int32_t f) {
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    uint8_t* p = image.pixels.data() + i;
    const int32_t grey = grey_of(p, 3);
    for (int c = 0; c < 3; ++c) p[c] = blended(p[c], grey, f);
  }
}

// The place of a colour on the hexagon, from 0 to 6 d with d = largest - smallest. On each of the six sides one channel
// is the largest, one the smallest, and the third moves between the two.
void turn_hue(Image& image, int32_t f) {
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    uint8_t* p = image.pixels.data() + i;
    const int32_t r = p[0], g = p[1], b = p[2];
    const int32_t most = std::max({r, g, b}), least = std::min({r, g, b}), d = most - least;
    if (d == 0) continue;
    int32_t place = most == r ? g - b : most == g ? 2 * d + b - r : 4 * d + r - g;
    place = (place + ((6 * d * f + kHalf) >> 16) + 12 * d) % (6 * d);
    const int32_t side = place / d, way = place % d, rising = least + way, falling = most - way;
    const std::array<int32_t, 3> turned = side == 0   ? std::array{most, rising, least}
                                          : side == 1 ? std::array{falling, most, least}
                                          : side == 2 ? std::array{least, most, rising}
                                          : side == 3 ? std::array{least, falling, most}
                                          : side == 4 ? std::array{rising, least, most}
                                                      : std::array{most, least, falling};
    for (size_t c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(turned[c]);
  }
}

int32_t between(uint32_t word, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random_below(word, high - low + 1));
}

int32_t units(double amount) { return static_cast<int32_t>(std::floor(amount * kOne + 0.5)); }

}  // namespace

ColorJitter::ColorJitter(double brightness, double contrast, double saturation, double hue, int64_t channels)
    : brightness_(0), contrast_(0), saturation_(0), hue_(0) {
  const auto checked = [&](const char* key, double amount, double most, bool of_colour) {
    check_setting(amount >= 0 && amount <= most, key, "must be from 0 to {}, got {}", most, amount);
    check_setting(amount == 0 || channels == 3 || (channels == 1 && !of_colour), key,
                  "cannot be changed in images of {} channels", channels);
    return units(amount);
  };
  brightness_ = checked("data.brightness", brightness, 8, false);
  contrast_ = checked("data.contrast", contrast, 8, false);
  saturation_ = checked("data.saturation", saturation, 8, true);
  hue_ = checked("data.hue", hue, 0.5, true);
}

void ColorJitter::operator()(Image& image, const Random4& amounts, uint32_t order) const {
  const auto factor = [&](int which, int32_t amount) {
    return between(amounts.v[which], kOne - std::min(amount, kOne), kOne + amount);
  };
  std::array<int, 4> left = {0, 1, 2, 3};
  auto rest = static_cast<size_t>((uint64_t{order} * 24) >> 32);
  for (size_t count = 4; count > 0; --count) {
    const size_t chosen = rest % count;
    rest /= count;
    const int which = left[chosen];
    std::copy(left.begin() + static_cast<long>(chosen) + 1, left.end(), left.begin() + static_cast<long>(chosen));
    if (which == 0 && brightness_ > 0) scale_brightness(image, factor(0, brightness_));
    if (which == 1 && contrast_ > 0) scale_contrast(image, factor(1, contrast_));
    if (which == 2 && saturation_ > 0) scale_saturation(image, factor(2, saturation_));
    if (which == 3 && hue_ > 0) turn_hue(image, between(amounts.v[3], -hue_, hue_));
  }
}

void ColorJitter::describe(Hasher& hasher) const {
  for (const int32_t amount : {brightness_, contrast_, saturation_, hue_}) hasher.add_integer(amount);
}

}  // namespace elinvar
