// Decoding of images: pixels, and the messages about damaged files.
#include <gtest/gtest.h>
#include <zlib.h>

#include <utility>

#include "data/image.h"
#include "tensor/base/check.h"
#include "tensor/philox.h"
#include "tests/data/image_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

TEST(DecodeImage, PngIsExactAndGreyBecomesThreeChannels) {
  const Image image = random_image(5, 7, 3, 1), grey = random_image(4, 3, 1, 2);
  const Image back = decode_image(png(image), 3, "a.png");
  EXPECT_EQ(back.height, 5);
  EXPECT_EQ(back.width, 7);
  EXPECT_EQ(back.pixels, image.pixels);
  const Image spread = decode_image(png(grey), 3, "grey.png");
  ASSERT_EQ(spread.pixels.size(), 36u);
  for (size_t i = 0; i < 36; ++i) EXPECT_EQ(spread.pixels[i], grey.pixels[i / 3]);
}

TEST(DecodeImage, JpegComesClose) {
  Image image(16, 16, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i / 48 * 15);
  const Image back = decode_image(jpeg(image), 3, "a.jpg");
  // JPEG changes each value a little; wrong channels, rows or range would differ by far more than 12.
  for (size_t i = 0; i < image.pixels.size(); ++i) EXPECT_NEAR(back.pixels[i], image.pixels[i], 12);
}

TEST(DecodeImage, NamesTheFileThatIsDamaged) {
  const auto error = [](const std::string& bytes) {
    return message_of<Failure>([&] { decode_image(bytes, 3, "cat.jpg"); });
  };
  const std::string p = png(random_image(9, 9, 3, 1)), j = jpeg(random_image(40, 40, 3, 1));
  for (size_t size : {p.size() - 1, p.size() - 14, p.size() / 2, size_t{9}})
    EXPECT_NE(error(p.substr(0, size)).find("'cat.jpg' is damaged or truncated"), std::string::npos) << size;
  for (size_t size : {j.size() - 1, j.size() / 2, size_t{700}, size_t{100}, size_t{2}})
    EXPECT_NE(error(j.substr(0, size)).find("'cat.jpg' is damaged or truncated"), std::string::npos) << size;
  std::string flipped = p;
  flipped[p.size() / 2] ^= 4;
  EXPECT_NE(error(flipped).find("damaged"), std::string::npos);
  EXPECT_NE(error("").find("neither JPEG nor PNG"), std::string::npos);
  EXPECT_NE(error("GIF89a").find("neither JPEG nor PNG"), std::string::npos);
  EXPECT_NE(error(std::string("\xFF\xD8\xFF\xD9")).find("cat.jpg"), std::string::npos);
}

// A file of 64 KiB whose one part of data unpacks to 64 MiB, where 8 x 8 pixels need 200 bytes.
TEST(DecodeImage, RefusesAPngThatUnpacksToFarMoreThanItsPixels) {
  const std::string zeros(size_t{64} << 20, '\0');
  const auto with = [&](size_t bytes) {
    uLongf size = compressBound(bytes);
    std::string packed(size, '\0');
    compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(zeros.data()), bytes);
    packed.resize(size);
    const auto part = [](std::string contents) {
      std::string text;
      for (const uLong number :
           {static_cast<uLong>(contents.size() - 4),
            crc32(0, reinterpret_cast<const Bytef*>(contents.data()), static_cast<uInt>(contents.size()))}) {
        for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift);
        text += std::exchange(contents, {});
      }
      return text;
    };
    return "\x89PNG\r\n\x1A\n" + part(std::string("IHDR\0\0\0\x8\0\0\0\x8\x8\x2\0\0\0", 17)) + part("IDAT" + packed) +
           part("IEND");
  };
  EXPECT_EQ(decode_image(with(8 * 25), 3, "whole.png").pixels, std::vector<uint8_t>(8 * 8 * 3));
  EXPECT_EQ(message_of<Failure>([&] { decode_image(with(zeros.size()), 3, "bomb.png"); }),
            "[image] 'bomb.png' unpacks to more than its 8 x 8 pixels; save it again or remove it");
}

// A scan of a dozen bytes makes the decoder process the whole image.
TEST(DecodeImage, RefusesAJpegOfVeryManyScans) {
  const std::string whole = jpeg(random_image(24, 24, 3, 1)), end = whole.substr(whole.size() - 2);
  const std::string scan = std::string("\xFF\xDA\0\x08\1\1\0\0\x3F\0", 10);
  const auto with = [&](int64_t scans) {
    std::string bytes = whole.substr(0, whole.size() - 2);
    for (int64_t i = 0; i < scans; ++i) bytes += scan;
    return bytes + end;
  };
  EXPECT_NO_THROW(decode_image(with(kMostScans - 1), 3, "some.jpg"));
  EXPECT_NE(
      message_of<Failure>([&] { decode_image(with(kMostScans), 3, "many.jpg"); }).find("'many.jpg' has 101 scans"),
      std::string::npos);
}

TEST(DecodeImage, SurvivesDamage) {
  const std::string whole = jpeg(random_image(24, 24, 3, 1));
  for (uint32_t round = 0; round < 1000; ++round) {
    std::string bytes = whole;
    for (uint32_t k = 0; k <= round % 4; ++k) {
      const Random4 r = philox(7, round, k, 0, 0);
      bytes[2 + r.v[0] % (bytes.size() - 2)] = static_cast<char>(r.v[1]);
    }
    try {
      decode_image(bytes, 3, "fuzz");
    } catch (const Failure&) {
    }
  }
}

}  // namespace
}  // namespace elinvar::test
