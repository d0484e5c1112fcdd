// Compares colour jitter with torchvision's definition in floating point.
#include "data/color_jitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "data/transform.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

Image noise(int64_t h, int64_t w, int64_t c, uint64_t key = 1) {
  Image image(h, w, c);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0] >> 24);
  return image;
}

// Returns the factor that a word draws, from 1 - amount (at least 0) to 1 + amount.
double factor(uint32_t word, double amount) {
  const double share = static_cast<double>(word) / 4294967296.0, low = std::max(0.0, 1 - amount);
  return low + share * (1 + amount - low);
}

using Color = std::array<double, 3>;

double grey(const Color& p) { return 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2]; }

// Rotates the hue of a colour by `turn` turns; value and saturation stay.
Color turned(const Color& p, double turn) {
  const double most = std::max({p[0], p[1], p[2]}), least = std::min({p[0], p[1], p[2]}), d = most - least;
  if (d == 0) return p;
  double h = most == p[0]   ? (p[1] - p[2]) / d / 6
             : most == p[1] ? (2 + (p[2] - p[0]) / d) / 6
                            : (4 + (p[0] - p[1]) / d) / 6;
  h = (h + turn) - std::floor(h + turn);
  Color out;
  for (size_t c = 0; c < 3; ++c) {
    const double k = std::fmod(h * 6 + (c == 0 ? 5 : c == 1 ? 3 : 1), 6);
    out[c] = most - d * std::clamp(std::min(k, 4 - k), 0.0, 1.0);
  }
  return out;
}

void expect_close(const Image& image, const Image& before, double tolerance,
                  const std::function<Color(Color)>& change) {
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const auto* p = before.pixels.data() + i;
    const Color expected = change({double(p[0]), double(p[1]), double(p[2])});
    for (size_t c = 0; c < 3; ++c)
      ASSERT_NEAR(image.pixels[i + c], std::clamp(expected[c], 0.0, 255.0), tolerance) << "pixel " << i / 3;
  }
}

// Tolerances: results are rounded to whole values, and factors and greys to fixed point. A grey or a mean that is
// itself rounded to a whole value has an error of half a unit, which counts by |1 - f|.
TEST(ColorJitter, IsTorchvisionsBrightnessContrastSaturationAndHue) {
  const Image before = noise(13, 11, 3);
  double mean = 0;
  for (size_t i = 0; i < before.pixels.size(); i += 3)
    mean += grey({double(before.pixels[i]), double(before.pixels[i + 1]), double(before.pixels[i + 2])}) / (13 * 11);
  const auto blend = [](const Color& p, double base, double f) {
    return Color{f * p[0] + (1 - f) * base, f * p[1] + (1 - f) * base, f * p[2] + (1 - f) * base};
  };
  for (const uint32_t word : {0u, 0x10000000u, 0x7FFFFFFFu, 0xA5A5A5A5u, 0xFFFFFFFFu})
    for (const double amount : {0.1, 0.4, 1.0, 2.5}) {
      const double f = factor(word, amount);
      const Random4 words{{word, word, word, word}};
      const auto changed = [&](const ColorJitter& jitter) {
        Image image = before;
        jitter(image, words, 0);
        return image;
      };
      expect_close(changed({amount, 0, 0, 0, 3}), before, 0.51, [&](const Color& p) { return blend(p, 0, f); });
      expect_close(changed({0, amount, 0, 0, 3}), before, 0.6 + 0.5 * std::abs(1 - f),
                   [&](const Color& p) { return blend(p, mean, f); });
      expect_close(changed({0, 0, amount, 0, 3}), before, 0.6 + 0.5 * std::abs(1 - f),
                   [&](const Color& p) { return blend(p, grey(p), f); });
      const double most = std::min(amount, 0.5), turn = (2.0 * word / 4294967296.0 - 1) * most;
      expect_close(changed({0, 0, 0, most, 3}), before, 0.6, [&](const Color& p) { return turned(p, turn); });
    }
}

TEST(ColorJitter, AThirdOfATurnExchangesChannelsAndGreyHasNoHue) {
  Image image(1, 3, 3);
  image.pixels = {200, 30, 90, 255, 0, 0, 77, 77, 77};
  const ColorJitter jitter(0, 0, 0, 1.0 / 3, 3);
  jitter(image, {{0, 0, 0, 0xFFFFFFFF}}, 5);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{90, 200, 30, 0, 255, 0, 77, 77, 77}));
  jitter(image, {{0, 0, 0, 0}}, 5);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{200, 30, 90, 255, 0, 0, 77, 77, 77}));
}

TEST(ColorJitter, AppliesThemInEveryOrder) {
  const ColorJitter jitter(0.9, 0.9, 0.9, 0.3, 3);
  std::set<std::vector<uint8_t>> seen;
  for (uint32_t order = 0; order < 24; ++order) {
    Image image = noise(20, 20, 3);
    jitter(image, {{0xF0000000, 0xE0000000, 0x10000000, 0xD0000000}}, order * 0x0AAAAAAB + 0x00010000);
    seen.insert(image.pixels);
  }
  EXPECT_GT(seen.size(), 20u);  // changing the hue commutes with some of the others
}

TEST(ColorJitter, OneChannelHasBrightnessAndContrast) {
  Image image = noise(5, 5, 1);
  ColorJitter(0.5, 0.5, 0, 0, 1)(image, {{0, 0, 0, 0}}, 0);
  EXPECT_NE(image.pixels, noise(5, 5, 1).pixels);
  EXPECT_NE(message_of<UsageError>([] { ColorJitter(0, 0, 0.1, 0, 1); })
                .find("data.saturation cannot be changed in "
                      "images of 1 channels"),
            std::string::npos);
}

TEST(ColorJitter, RefusesAmountsWithoutSense) {
  EXPECT_NE(message_of<UsageError>([] { ColorJitter(-0.1, 0, 0, 0, 3); }).find("data.brightness must be from 0 to 8"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { ColorJitter(0, 9, 0, 0, 3); }).find("data.contrast"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { ColorJitter(0, 0, 0, 0.6, 3); }).find("data.hue must be from 0 to 0.5"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { ColorJitter(0, 0, std::nan(""), 0, 3); }).find("data.saturation"),
            std::string::npos);
}

TEST(ColorJitter, IsDrawnForASampleInAnEpochAndOnlyInTraining) {
  const Image image = noise(12, 12, 3);
  DataConfig config;
  config.brightness = config.contrast = config.saturation = 0.5;
  config.hue = 0.2;
  const ImageTransform plain({}, image.view(), {{0, 0, 0}, {1, 1, 1}}),
      jittered(config, image.view(), {{0, 0, 0}, {1, 1, 1}});
  const auto apply = [&](const ImageTransform& transform, const Draw& draw, int64_t index) {
    std::vector<float> out(12 * 12 * 3);
    transform(
        image.view(), index, draw, [] { return std::string("image"); }, out.data());
    return out;
  };
  const Draw draw{.seed = 1, .epoch = 2, .augment = true};
  EXPECT_EQ(apply(jittered, draw, 5), apply(jittered, draw, 5));
  EXPECT_NE(apply(jittered, draw, 5), apply(plain, draw, 5));
  EXPECT_NE(apply(jittered, draw, 5), apply(jittered, draw, 6));
  EXPECT_NE(apply(jittered, draw, 5), apply(jittered, {.seed = 1, .epoch = 3, .augment = true}, 5));
  EXPECT_NE(apply(jittered, draw, 5), apply(jittered, {.seed = 2, .epoch = 2, .augment = true}, 5));
  EXPECT_EQ(apply(jittered, {}, 5), apply(plain, {}, 5));
}

// Runs with colour jitter depend on these bits.
TEST(ColorJitter, GoldenDigest) {
  Hasher hasher;
  for (uint32_t i = 0; i < 30; ++i) {
    Image image = noise(9, 9, 3, i);
    ColorJitter(0.4, 0.4, 0.4, 0.1, 3)(image, philox(1, i, 0, 0, 0), philox(2, i, 0, 0, 0).v[0]);
    hasher.add(image.pixels.data(), image.pixels.size());
  }
  EXPECT_EQ(hasher.digest().hex(), "518000e70054ccf7c621506258e63d3f");
}

}  // namespace
}  // namespace elinvar::test
