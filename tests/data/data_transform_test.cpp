// Scaling, cropping, mirroring and normalising.
#include "data/transform.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/philox.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

Image random_image(int64_t h, int64_t w, int64_t c, uint64_t key = 1) {
  Image image(h, w, c);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0] >> 24);
  return image;
}

// Returns an image whose pixels differ: 16 * y + x + 1.
Image numbered(int64_t h, int64_t w) {
  Image image(h, w, 1);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) image.pixels[static_cast<size_t>(y * w + x)] = static_cast<uint8_t>(16 * y + x + 1);
  return image;
}

Image whole(const Image& image, int64_t h, int64_t w) {
  return resize(image.view(), {0, 0, image.height, image.width}, h, w, {0, 0, h, w});
}

TEST(Resize, AnEqualSizeChangesNoPixel) {
  const Image image = random_image(13, 9, 3);
  EXPECT_EQ(whole(image, 13, 9).pixels, image.pixels);
}

TEST(Resize, AFlatImageStaysFlat) {
  Image image(11, 17, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{201});
  for (auto [h, w] : {std::pair{3, 5}, {11, 40}, {50, 2}, {1, 1}})
    for (uint8_t p : whole(image, h, w).pixels) EXPECT_EQ(p, 201);
}

// Compares with the triangle filter in floating point, without intermediate rounding.
TEST(Resize, FollowsTheTriangleFilter) {
  const Image image = random_image(21, 21, 1);
  for (int64_t out : {1, 2, 5, 10, 20, 22, 63}) {
    const auto weights = [&](int64_t i) {
      const double scale = 21.0 / static_cast<double>(out), support = std::max(scale, 1.0),
                   centre = (static_cast<double>(i) + 0.5) * scale;
      std::vector<double> w(21);
      double sum = 0;
      for (size_t j = 0; j < 21; ++j)
        sum += w[j] = std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / support);
      for (double& v : w) v /= sum;
      return w;
    };
    const Image result = whole(image, out, out);
    for (int64_t y = 0; y < out; ++y)
      for (int64_t x = 0; x < out; ++x) {
        const auto wy = weights(y), wx = weights(x);
        double expected = 0;
        for (size_t j = 0; j < 21; ++j)
          for (size_t i = 0; i < 21; ++i) expected += wy[j] * wx[i] * image.pixels[j * 21 + i];
        // Both passes round to whole pixel values (half a unit each), with fixed-point weights.
        EXPECT_NEAR(result.pixels[static_cast<size_t>(y * out + x)], expected, 1.3) << out;
      }
  }
}

// The weights as data/resize.h states them.
std::vector<int32_t> stated_weights(int64_t in, int64_t out, int64_t i) {
  std::vector<int64_t> w;
  for (int64_t j = 0; j < in; ++j)
    w.push_back(std::max<int64_t>(0, 2 * std::max(in, out) - std::abs((2 * j + 1) * out - (2 * i + 1) * in)));
  const int64_t sum = std::accumulate(w.begin(), w.end(), int64_t{0});
  std::vector<int32_t> q;
  for (int64_t v : w) q.push_back(static_cast<int32_t>((v << 14) / sum));
  q[static_cast<size_t>(std::max_element(w.begin(), w.end()) - w.begin())] +=
      (1 << 14) - std::accumulate(q.begin(), q.end(), 0);
  return q;
}

// Returns the image scaled to `width` and transposed.
Image scaled_and_turned(const Image& image, int64_t width) {
  Image turned(width, image.height, image.channels);
  for (int64_t x = 0; x < width; ++x) {
    const std::vector<int32_t> q = stated_weights(image.width, width, x);
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t k = 0; k < image.channels; ++k) {
        int32_t sum = 1 << 13;
        for (int64_t j = 0; j < image.width; ++j)
          sum +=
              q[static_cast<size_t>(j)] * image.pixels[static_cast<size_t>((y * image.width + j) * image.channels + k)];
        turned.pixels[static_cast<size_t>((x * image.height + y) * image.channels + k)] =
            static_cast<uint8_t>(sum >> 14);
      }
  }
  return turned;
}

TEST(Resize, IsTheStatedSumOnEveryInstructionSet) {
  const Isa before = current_isa();
  for (int64_t channels : {1, 2, 3, 4, 5})
    for (auto [h, w] : {std::pair{1, 1}, {7, 3}, {23, 31}, {40, 90}}) {
      const Image image = random_image(h, w, channels);
      for (auto [height, width] : {std::pair{1, 1}, {5, 9}, {23, 20}, {64, 65}}) {
        const Image expected = scaled_and_turned(scaled_and_turned(image, width), height);
        for (Isa isa : available_isas()) {
          set_isa(isa);
          EXPECT_EQ(whole(image, height, width).pixels, expected.pixels)
              << h << " x " << w << " x " << channels << " to " << height << " x " << width << ", " << name_of(isa);
        }
      }
    }
  set_isa(before);
}

// The image ends at the end of accessible memory.
TEST(Resize, ReadsNothingAfterTheImage) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  uint8_t* const end = static_cast<uint8_t*>(memory) + page;
  ASSERT_EQ(::mprotect(end, page, PROT_NONE), 0);
  for (int64_t channels : {1, 2, 3, 4, 5})
    for (int64_t h : {1, 2, 3, 4, 5})
      for (int64_t w : {1, 2, 3, 4}) {
        const Image image = random_image(h, w, channels);
        uint8_t* const begin = end - image.pixels.size();
        std::copy(image.pixels.begin(), image.pixels.end(), begin);
        EXPECT_EQ(resize({begin, h, w, channels}, {0, 0, h, w}, 3, 2, {0, 0, 3, 2}).pixels, whole(image, 3, 2).pixels);
      }
  ::munmap(memory, 2 * page);
}

TEST(Resize, AWindowOrAPartIsWhatItIsOfTheWhole) {
  const Image image = random_image(30, 40, 3);
  const Image all = whole(image, 21, 33), window = resize(image.view(), {0, 0, 30, 40}, 21, 33, {4, 7, 10, 20});
  for (int64_t y = 0; y < 10; ++y)
    for (int64_t i = 0; i < 60; ++i)
      ASSERT_EQ(window.pixels[static_cast<size_t>(y * 60 + i)], all.pixels[static_cast<size_t>((y + 4) * 99 + 21 + i)]);

  Image cut(8, 9, 3);
  for (int64_t y = 0; y < 8; ++y)
    std::copy_n(image.pixels.data() + ((y + 3) * 40 + 5) * 3, 27, cut.pixels.data() + y * 27);
  EXPECT_EQ(resize(image.view(), {3, 5, 8, 9}, 12, 5, {0, 0, 12, 5}).pixels, whole(cut, 12, 5).pixels);
}

std::vector<float> apply(const ImageTransform& transform, const Image& image, const Draw& draw = {},
                         int64_t index = 0) {
  std::vector<float> out(static_cast<size_t>(transform.output_shape().numel()));
  transform(
      image.view(), index, draw, [] { return std::string("image"); }, out.data());
  return out;
}

std::vector<int> bytes_of(const std::vector<float>& values) {
  std::vector<int> bytes;
  for (float v : values) bytes.push_back(static_cast<int>(std::lround(v * 255)));
  return bytes;
}

ImageTransform transform_of(const DataConfig& config, const Image& image) {
  const auto c = static_cast<size_t>(image.channels);
  return {config, image.view(), {std::vector<double>(c, 0.0), std::vector<double>(c, 1.0)}};
}

TEST(Transform, NormalisesInThreeSteps) {
  const Image image = random_image(4, 4, 3);
  const ImageTransform t({.mean = {0.4914, 0.4822, 0.4465}, .std = {0.247, 0.2435, 0.2616}}, image.view(), {});
  const std::vector<float> out = apply(t, image);
  const float mean[] = {0.4914f, 0.4822f, 0.4465f}, std[] = {0.247f, 0.2435f, 0.2616f};
  for (size_t i = 0; i < out.size(); ++i) {
    const float p = image.pixels[i], share = p / 255.0f, centred = share - mean[i % 3];
    EXPECT_EQ(out[i], centred / std[i % 3]);
  }
}

TEST(Transform, EvaluationTakesTheCentreOfTheScaledImage) {
  const Image image = numbered(4, 8);
  EXPECT_EQ(bytes_of(apply(transform_of({.image_size = 4}, image), image)),
            (std::vector<int>{3, 4, 5, 6, 19, 20, 21, 22, 35, 36, 37, 38, 51, 52, 53, 54}));
  EXPECT_EQ(bytes_of(apply(transform_of({.image_size = 2, .resize = 4}, image), image)),
            (std::vector<int>{20, 21, 36, 37}));
  const Image scaled = whole(image, 6, 12);
  const std::vector<int> out = bytes_of(apply(transform_of({.image_size = 4, .resize = 6}, image), image));
  for (size_t y = 0; y < 4; ++y)
    for (size_t x = 0; x < 4; ++x) EXPECT_EQ(out[y * 4 + x], scaled.pixels[(y + 1) * 12 + 4 + x]);
}

TEST(Transform, CropsFromThePaddedImageAndMirrors) {
  const Image image = numbered(4, 4);
  const ImageTransform t = transform_of({.crop_padding = 2, .flip = true}, image);
  EXPECT_EQ(bytes_of(apply(t, image)), bytes_of(apply(transform_of({}, image), image)));  // evaluation ignores it
  std::map<std::vector<int>, int> seen;
  for (int64_t i = 0; i < 5000; ++i) ++seen[bytes_of(apply(t, image, {.seed = 1, .augment = true}, i))];
  EXPECT_EQ(seen.size(), 50u);  // 5 x 5 places, mirrored or not
  for (int64_t top = -2; top <= 2; ++top)
    for (int64_t left = -2; left <= 2; ++left)
      for (bool mirrored : {false, true}) {
        std::vector<int> expected;
        for (int64_t y = top; y < top + 4; ++y)
          for (int64_t k = 0; k < 4; ++k) {
            const int64_t x = left + (mirrored ? 3 - k : k);
            expected.push_back(y >= 0 && y < 4 && x >= 0 && x < 4 ? static_cast<int>(16 * y + x + 1) : 0);
          }
        EXPECT_NEAR(seen[expected], 100, 45) << top << " " << left;  // 4.5 standard deviations
      }
}

TEST(Transform, ReflectsTheImageAtItsBorderPixels) {
  const Image image = numbered(5, 5);
  const ImageTransform t = transform_of({.crop_padding = 2, .padding_mode = "reflect"}, image);
  std::map<std::vector<int>, int> seen;
  for (int64_t i = 0; i < 2500; ++i) ++seen[bytes_of(apply(t, image, {.seed = 1, .augment = true}, i))];
  EXPECT_EQ(seen.size(), 25u);
  const int line[] = {2, 1, 0, 1, 2, 3, 4, 3, 2};
  for (int top = 0; top < 5; ++top)
    for (int left = 0; left < 5; ++left) {
      std::vector<int> expected;
      for (int y = 0; y < 5; ++y)
        for (int x = 0; x < 5; ++x) expected.push_back(16 * line[top + y] + line[left + x] + 1);
      EXPECT_NEAR(seen[expected], 100, 45) << top << " " << left;  // 4.5 standard deviations
    }
}

TEST(Transform, ReflectsAScaledImageAsTheStoredOne) {
  const Image image = random_image(30, 40, 3), scaled = whole(image, 18, 24);
  const ImageTransform of_stored =
                           transform_of({.image_size = 18, .crop_padding = 4, .padding_mode = "reflect"}, scaled),
                       of_image = transform_of({.image_size = 18, .crop_padding = 4, .padding_mode = "reflect"}, image);
  for (int64_t i = 0; i < 200; ++i)
    ASSERT_EQ(apply(of_image, image, {.seed = 1, .augment = true}, i),
              apply(of_stored, scaled, {.seed = 1, .augment = true}, i));
}

TEST(Transform, AlternateFlipsMirrorEverySampleInEveryOtherEpoch) {
  const Image image = numbered(4, 4);
  const ImageTransform t = transform_of({.flip = true, .alternate_flip = true}, image);
  const std::vector<float> plain = apply(t, image);
  int mirrored = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const auto at = [&](int64_t epoch) { return apply(t, image, {.seed = 1, .epoch = epoch, .augment = true}, i); };
    EXPECT_EQ(at(0), at(2));
    EXPECT_EQ(at(1), at(3));
    EXPECT_NE(at(0), at(1));
    EXPECT_TRUE(at(0) == plain || at(1) == plain);
    mirrored += at(0) != plain;
  }
  EXPECT_NEAR(mirrored, 500, 60);  // 3.8 standard deviations
}

TEST(Transform, CutsOutASquareAroundAnyPixel) {
  Image image(6, 6, 1);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{9});
  const ImageTransform t = transform_of({.cutout = 3}, image);
  const std::vector<float> plain = apply(t, image);
  std::map<std::vector<bool>, int> seen;
  for (int64_t i = 0; i < 3600; ++i) {
    const std::vector<float> out = apply(t, image, {.seed = 1, .augment = true}, i);
    std::vector<bool> cut;
    for (size_t k = 0; k < out.size(); ++k) {
      EXPECT_TRUE(out[k] == 0.0f || out[k] == plain[k]);
      cut.push_back(out[k] == 0.0f);
    }
    ++seen[cut];
  }
  EXPECT_EQ(seen.size(), 36u);
  for (int64_t cy = 0; cy < 6; ++cy)
    for (int64_t cx = 0; cx < 6; ++cx) {
      std::vector<bool> expected;
      for (int64_t y = 0; y < 6; ++y)
        for (int64_t x = 0; x < 6; ++x) expected.push_back(std::abs(y - cy) <= 1 && std::abs(x - cx) <= 1);
      EXPECT_NEAR(seen[expected], 100, 45) << cy << " " << cx;  // 4.5 standard deviations
    }
}

TEST(Transform, DrawsDependOnSeedEpochAndIndexAlone) {
  const Image image = random_image(20, 30, 3);
  for (const DataConfig& config :
       {DataConfig{.image_size = 12, .resize = 16, .crop_padding = 1, .flip = true},
        DataConfig{.image_size = 12, .flip = true, .cutout = 5, .random_resized_crop = true}}) {
    const ImageTransform t = transform_of(config, image);
    const Draw draw{.seed = 1, .epoch = 2, .augment = true};
    const std::vector<float> out = apply(t, image, draw, 5);
    EXPECT_EQ(out, apply(t, image, draw, 5));
    EXPECT_NE(out, apply(t, image, {.seed = 2, .epoch = 2, .augment = true}, 5));
    EXPECT_NE(out, apply(t, image, {.seed = 1, .epoch = 3, .augment = true}, 5));
    EXPECT_NE(out, apply(t, image, draw, 6));
    EXPECT_EQ(apply(t, image), apply(t, image, {.seed = 9, .epoch = 9, .augment = false}, 0));
  }
}

// In a ramp whose pixels encode their place, the corners show which part was taken.
TEST(Transform, RandomPartsHaveTheStatedAreasAndAspects) {
  Image ramp(240, 250, 3);
  for (int64_t y = 0; y < 240; ++y)
    for (int64_t x = 0; x < 250; ++x) {
      uint8_t* p = ramp.pixels.data() + (y * 250 + x) * 3;
      p[0] = static_cast<uint8_t>(y);
      p[1] = static_cast<uint8_t>(x);
      p[2] = 7;
    }
  const ImageTransform t = transform_of({.image_size = 100, .random_resized_crop = true, .crop_area_min = 0.3}, ramp);
  double least = 1, most = 0, wide = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const std::vector<int> out = bytes_of(apply(t, ramp, {.seed = 1, .augment = true}, i));
    const double h = (out[99 * 300] - out[0]) * 100.0 / 99, w = (out[99 * 3 + 1] - out[1]) * 100.0 / 99;
    const double area = h * w / (240 * 250);
    EXPECT_LT(std::max(h / w, w / h), 1.38);
    least = std::min(least, area);
    most = std::max(most, area);
    wide += w > h;
  }
  EXPECT_GT(least, 0.27);
  EXPECT_LT(least, 0.35);
  EXPECT_GT(most, 0.85);
  EXPECT_NEAR(wide, 250, 50);  // 4.5 standard deviations
}

// Runs on images depend on these bits.
TEST(Transform, GoldenDigest) {
  Hasher hasher;
  const Image image = random_image(37, 50, 3);
  for (const DataConfig& config : {DataConfig{.image_size = 24, .resize = 28, .crop_padding = 2, .flip = true},
                                   DataConfig{.image_size = 24, .flip = true, .random_resized_crop = true}})
    for (int64_t i = 0; i < 20; ++i) {
      const std::vector<float> out =
          apply(transform_of(config, image), image, {.seed = 3, .epoch = 1, .augment = true}, i);
      hasher.add(out.data(), out.size() * sizeof(float));
    }
  EXPECT_EQ(hasher.digest().hex(), "b69f3f7aba4f80e48a87519b2709de3a");
}

TEST(Transform, RefusesSettingsWithoutSense) {
  const Image image = random_image(8, 8, 3);
  const auto error = [&](const DataConfig& config) {
    return message_of<UsageError>([&] { transform_of(config, image); });
  };
  EXPECT_EQ(error({}), "");
  EXPECT_NE(error({.image_size = -1}).find("image_size must be"), std::string::npos);
  EXPECT_NE(error({.image_size = 8, .resize = 7}).find("resize = 7 must not be less than image_size = 8"),
            std::string::npos);
  EXPECT_NE(error({.resize = 7}).find("needs an image_size"), std::string::npos);
  EXPECT_NE(error({.random_resized_crop = true}).find("needs an image_size"), std::string::npos);
  EXPECT_NE(error({.image_size = 8, .crop_padding = 1, .random_resized_crop = true}).find("exclude each other"),
            std::string::npos);
  EXPECT_NE(error({.crop_padding = -1}).find("crop_padding must be"), std::string::npos);
  EXPECT_NE(error({.padding_mode = "white"}).find("must be \"black\" or \"reflect\", got \"white\""),
            std::string::npos);
  EXPECT_NE(error({.crop_padding = 4, .padding_mode = "reflect"}).find("less than half of the image's 8"),
            std::string::npos);
  EXPECT_NE(error({.alternate_flip = true}).find("needs flip = true"), std::string::npos);
  EXPECT_NE(error({.cutout = -1}).find("cutout must be"), std::string::npos);
  EXPECT_NE(error({.crop_area_min = 0}).find("crop_area_min"), std::string::npos);
  EXPECT_NE(error({.mean = {0.5}, .std = {0.5}}).find("data.mean needs one value for each of 3 channels, got 1"),
            std::string::npos);
  EXPECT_NE(error({.std = {1, 0, 1}}).find("data.std must be finite and positive, got 0"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
