// Kinds of image files (data/image.h), orientations, and damaged files.
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <functional>

#include "data/exif.h"
#include "data/image.h"
#include "data/loader.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/data/image_writer.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

// tests/golden/make_images.py wrote the files.
std::string golden(const std::string& name) { return read_file(ELINVAR_SOURCE_DIR "/tests/golden/images/" + name); }

std::string big_endian(uint32_t word) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift & 0xFF);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& contents) {
  const std::string body = type + contents;
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(contents.size())) + body + big_endian(static_cast<uint32_t>(sum));
}

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1A\n", 8);

std::string png_header(uint32_t width, uint32_t height, int bits, int color) {
  return chunk("IHDR", big_endian(width) + big_endian(height) + static_cast<char>(bits) + static_cast<char>(color) +
                           std::string(3, '\0'));
}

// Three channels of 16 bits.
std::string deep_png(int width, int height, const std::vector<uint16_t>& values) {
  std::string rows;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<size_t>(3 * width) == 0) rows += '\0';  // unfiltered
    rows += static_cast<char>(values[i] >> 8);
    rows += static_cast<char>(values[i] & 0xFF);
  }
  std::string packed(rows.size() + 1000, '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  packed.resize(size);
  return std::string(kPngSignature) + png_header(static_cast<uint32_t>(width), static_cast<uint32_t>(height), 16, 2) +
         chunk("IDAT", packed) + chunk("IEND", "");
}

// Inserts the block after the header of a PNG, or after the first marker of a JPEG.
std::string with_exif(std::string bytes, const std::string& tiff) {
  if (bytes.starts_with("\xFF\xD8")) {
    const std::string contents = std::string("Exif\0\0", 6) + tiff;
    const auto length = static_cast<uint32_t>(contents.size() + 2);
    return bytes.insert(2, std::string("\xFF\xE1") + big_endian(length).substr(2) + contents);
  }
  return bytes.insert(33, chunk("eXIf", tiff));
}

// Returns an Exif block with another tag and the orientation.
std::string tiff(int orientation, bool little_endian, int type = 3) {
  const auto number = [&](size_t value, size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i)
      bytes += static_cast<char>(value >> (8 * (little_endian ? i : count - 1 - i)) & 0xFF);
    return bytes;
  };
  return std::string(little_endian ? "II" : "MM") + number(42, 2) + number(8, 4) + number(2, 2) +  //
         number(0x010F, 2) + number(2, 2) + number(4, 4) + number(0x41414100, 4) +                 //
         number(0x0112, 2) + number(static_cast<size_t>(type), 2) + number(1, 4) +                 //
         number(static_cast<size_t>(orientation), 2) + number(0, 2) + number(0, 4);
}

// `tolerance` is the loss of JPEG for these colours at the file's quality, which is larger with subsampled colour.
void expect_close(const Image& image, const std::function<std::array<int, 3>(int x, int y)>& color, int tolerance) {
  ASSERT_EQ(image.height, 16);
  ASSERT_EQ(image.width, 24);
  ASSERT_EQ(image.channels, 3);
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 24; ++x)
      for (size_t c = 0; c < 3; ++c)
        ASSERT_NEAR(image.pixels[static_cast<size_t>(y * 24 + x) * 3 + c], color(x, y)[c], tolerance)
            << "x " << x << ", y " << y << ", channel " << c;
}

TEST(Formats, ProgressiveAndSubsampledJpegsAreJpegs) {
  const auto color = [](int x, int y) { return std::array{10 * x, 16 * y, 100}; };
  expect_close(decode_image(golden("progressive.jpg"), 3, "p"), color, 5);
  expect_close(decode_image(golden("subsampled.jpg"), 3, "s"), color, 14);
}

TEST(Formats, GreyBecomesThreeEqualChannels) {
  const Image image = decode_image(golden("grey.jpg"), 3, "g");
  expect_close(
      image,
      [](int x, int) {
        return std::array{10 * x, 10 * x, 10 * x};
      },
      3);
  for (size_t i = 0; i < image.pixels.size(); i += 3) EXPECT_EQ(image.pixels[i], image.pixels[i + 2]);
}

TEST(Formats, InksOfCmykAndYcckBecomeColours) {
  const auto color = [](int x, int y) {
    const auto through = [](int ink) { return (255 - ink) * (255 - 60) / 255; };
    return std::array{through(10 * x), through(16 * y), through(100)};
  };
  expect_close(decode_image(golden("cmyk.jpg"), 3, "c"), color, 5);
  expect_close(decode_image(golden("ycck.jpg"), 3, "y"), color, 6);
}

TEST(Formats, FourComponentsWithoutAdobesMarkerAreBroken) {
  std::string bytes = golden("cmyk.jpg");
  bytes[bytes.find("Adobe")] = 'X';
  const std::string error = message_of<BrokenImage>([&] { decode_image(bytes, 3, "ink.jpg"); });
  EXPECT_NE(error.find("'ink.jpg' has four components and no Adobe marker"), std::string::npos) << error;
}

TEST(Formats, OfSixteenBitsTheUpperEightCount) {
  std::vector<uint16_t> values;
  for (uint32_t i = 0; i < 5 * 4 * 3; ++i) values.push_back(static_cast<uint16_t>(i * 1021));
  const Image image = decode_image(deep_png(5, 4, values), 3, "deep.png");
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(image.pixels[i], values[i] >> 8);
  expect_close(
      decode_image(golden("grey16.png"), 3, "g"),
      [](int x, int) {
        return std::array{10 * x, 10 * x, 10 * x};
      },
      0);
}

TEST(Formats, PalettesGiveColoursAndTransparencyIsLeftOut) {
  expect_close(
      decode_image(golden("palette.png"), 3, "p"),
      [](int x, int) {
        return std::array{10 * x, 255 - 10 * x, 7};
      },
      0);
  const Image clear = random_image(6, 5, 4, 3);
  const Image image = decode_image(png(clear), 3, "clear.png");
  for (size_t i = 0; i < 30; ++i)
    for (size_t c = 0; c < 3; ++c) EXPECT_EQ(image.pixels[3 * i + c], clear.pixels[4 * i + c]);
}

TEST(Formats, ImagesAreTurnedUpright) {
  // Returns where the upright image's pixel (y, x) is in a stored one of h x w pixels.
  const auto source = [](int orientation, int64_t y, int64_t x, int64_t h, int64_t w) -> std::pair<int64_t, int64_t> {
    switch (orientation) {
      case 2:
        return {y, w - 1 - x};
      case 3:
        return {h - 1 - y, w - 1 - x};
      case 4:
        return {h - 1 - y, x};
      case 5:
        return {x, y};
      case 6:
        return {h - 1 - x, y};
      case 7:
        return {h - 1 - x, w - 1 - y};
      case 8:
        return {x, w - 1 - y};
      default:
        return {y, x};
    }
  };
  const Image stored = random_image(5, 7, 3, 1);
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool little_endian : {false, true}) {
      const Image image = decode_image(with_exif(png(stored), tiff(orientation, little_endian)), 3, "turned.png");
      ASSERT_EQ(image.height, orientation < 5 ? 5 : 7);
      ASSERT_EQ(image.width, orientation < 5 ? 7 : 5);
      for (int64_t y = 0; y < image.height; ++y)
        for (int64_t x = 0; x < image.width; ++x) {
          const auto [row, column] = source(orientation, y, x, 5, 7);
          for (int64_t c = 0; c < 3; ++c)
            ASSERT_EQ(image.pixels[static_cast<size_t>((y * image.width + x) * 3 + c)],
                      stored.pixels[static_cast<size_t>((row * 7 + column) * 3 + c)])
                << "orientation " << orientation;
        }
    }
  const std::string photo = jpeg(random_image(16, 40, 3, 2));
  const Image plain = decode_image(photo, 3, "a.jpg");
  EXPECT_EQ(decode_image(with_exif(photo, tiff(6, false)), 3, "b.jpg").pixels, upright(plain, 6).pixels);
  EXPECT_EQ(decode_image(with_exif(photo, tiff(6, true)), 3, "b.jpg").width, 16);
}

TEST(Formats, AnOrientationThatMakesNoSenseIsNone) {
  for (const bool little_endian : {false, true}) {
    const std::string good = tiff(6, little_endian);
    EXPECT_EQ(orientation_of(good), 6);
    EXPECT_EQ(orientation_of(tiff(0, little_endian)), 1);
    EXPECT_EQ(orientation_of(tiff(9, little_endian)), 1);
    EXPECT_EQ(orientation_of(tiff(6, little_endian, 4)), 1);
    for (size_t size = 0; size < 30; ++size) EXPECT_EQ(orientation_of(good.substr(0, size)), 1) << size;
    std::string astray = good;
    for (const size_t at : {4, 5, 6, 7}) astray[at] = '\xFF';
    EXPECT_EQ(orientation_of(astray), 1);
  }
  EXPECT_EQ(orientation_of("Photoshop"), 1);
}

TEST(Formats, HugeImagesAreRefusedBeforeTheyAreDecoded) {
  const std::string bomb = std::string(kPngSignature) + png_header(20000, 20000, 8, 2) +
                           chunk("IDAT", std::string("\x78\x9C\x03\x00\x00\x00\x00\x01", 8)) + chunk("IEND", "");
  const auto error = [](const std::string& bytes) {
    return message_of<BrokenImage>([&] { decode_image(bytes, 3, "sky.png"); });
  };
  EXPECT_NE(error(bomb).find("'sky.png' is 20000 x 20000, the most is 2^28 pixels"), std::string::npos) << error(bomb);
  std::string photo = jpeg(random_image(16, 16, 3, 1));
  const size_t frame = photo.find("\xFF\xC0");
  for (const size_t at : {frame + 5, frame + 6, frame + 7, frame + 8}) photo[at] = '\xF0';
  EXPECT_NE(error(photo).find("is 61680 x 61680"), std::string::npos) << error(photo);
}

// Six images of two classes, of which 2, 3 and the last are damaged in different ways.
class BrokenImages : public ::testing::Test {
 protected:
  BrokenImages() {
    for (int i = 0; i < 6; ++i) {
      std::string bytes = png(random_image(6, 6, 3, static_cast<uint64_t>(i)));
      if (i == 2) bytes = "";
      if (i == 3) bytes[bytes.size() / 2] ^= 1;
      if (i == 5) bytes.resize(bytes.size() - 3);
      folder_.write(name(i), bytes);
    }
  }
  static std::string name(int i) { return fmt::format("train/{}/{}.png", i < 3 ? "a" : "b", i); }
  std::unique_ptr<Dataset> open(int64_t cache_mb, const std::string& broken = "skip") const {
    DataConfig config{.kind = "image_folder", .path = folder_.path(), .mean = {0, 0, 0}, .std = {1, 1, 1}};
    config.flip = true;
    config.cache_mb = cache_mb;
    config.broken = broken;
    folder_.write("val/a/0.png", png(random_image(6, 6, 3, 9)));
    return open_dataset(config, Split::train);
  }
  static std::pair<std::vector<float>, int64_t> read(const Dataset& data, int64_t i, const Draw& draw = {}) {
    std::pair<std::vector<float>, int64_t> sample(std::vector<float>(6 * 6 * 3), -1);
    data.read(i, draw, {sample.first.data(), &sample.second});
    return sample;
  }
  TemporaryFolder folder_;
};

TEST_F(BrokenImages, AreErrorsWithAName) {
  EXPECT_NE(message_of<Failure>([&] { open(1024, "error"); }).find("train/a/2.png' is neither JPEG nor PNG"),
            std::string::npos);
  const auto lazy = open(0, "error");
  EXPECT_NE(message_of<BrokenImage>([&] { read(*lazy, 3); }).find("train/b/3.png' is damaged"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { open(0, "ignore"); }).find("data.broken must be \"error\" or \"skip\""),
            std::string::npos);
}

TEST_F(BrokenImages, TheNextWholeOneStandsInWithItsLabel) {
  for (const int64_t cache_mb : {0, 1024}) {
    const auto data = open(cache_mb);
    EXPECT_EQ(data->size(), 6);
    const int stands_in[] = {0, 1, 4, 4, 4, 0};
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(read(*data, i), read(*data, stands_in[i])) << i;
      EXPECT_EQ(read(*data, i).second, stands_in[i] == 4 ? 1 : 0);
    }
    const std::vector<std::string> notices = data->take_notices();
    ASSERT_EQ(notices.size(), 3u);
    EXPECT_NE(notices[2].find("5.png' is damaged"), std::string::npos) << notices[2];
    EXPECT_NE(notices[2].find("the next image stands in for it (3 left out so far)"), std::string::npos) << notices[2];
    read(*data, 2);
    EXPECT_TRUE(data->take_notices().empty());
    // The draws are those of the replaced sample.
    int differ = 0;
    for (int64_t epoch = 0; epoch < 64; ++epoch) {
      const Draw draw{.seed = 1, .epoch = epoch, .augment = true};
      differ += read(*data, 2, draw) != read(*data, 4, draw);
    }
    EXPECT_GT(differ, 10);
  }
}

TEST_F(BrokenImages, AllOfThemOrAnUnreadableFileIsAFailureStill) {
  const auto data = open(0);
  std::filesystem::remove(folder_ / name(4));
  EXPECT_NE(message_of<Failure>([&] { read(*data, 4); }).find("cannot open"), std::string::npos);
  for (int i = 0; i < 6; ++i) folder_.write(name(i), "x");
  EXPECT_NE(message_of<Failure>([&] { read(*data, 1); }).find("6 images in a row are broken"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
