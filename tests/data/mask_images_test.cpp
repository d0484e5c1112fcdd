// Images with a class for each pixel: their files, what is refused, and that colours and classes are cut alike.
#include <gtest/gtest.h>
#include <zlib.h>

#include <vector>

#include "data/class_image.h"
#include "data/dataset.h"
#include "data/mask_dataset.h"
#include "data/transform.h"
#include "tensor/base/setting.h"
#include "tests/data/image_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;
using test::TemporaryFolder;

// A PNG of one row for each string, of the given type and bits per sample; bytes are as in the file.
std::string png_of(int type, int bits, int width, const std::vector<std::string>& rows,
                   const std::string& palette = {}) {
  const auto number = [](size_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                       static_cast<char>(n)};
  };
  std::string file = "\x89PNG\r\n\x1A\n";
  const auto add = [&](const std::string& name, const std::string& contents) {
    const std::string part = name + contents;
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    file += number(contents.size()) + part + number(sum);
  };
  add("IHDR", number(static_cast<size_t>(width)) + number(rows.size()) + static_cast<char>(bits) +
                  static_cast<char>(type) + std::string(3, '\0'));
  if (!palette.empty()) add("PLTE", palette);
  std::string raw;
  for (const std::string& row : rows) raw += '\0' + row;
  uLongf size = compressBound(raw.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()), raw.size());
  add("IDAT", packed.substr(0, size));
  add("IEND", "");
  return file;
}

using Classes = std::vector<uint8_t>;

TEST(MaskImages, ClassesAreGreysOrIndicesOfAPalette) {
  EXPECT_EQ(decode_classes(png_of(0, 8, 3, {std::string("\x00\x07\xff", 3)}), "m").pixels, (Classes{0, 7, 255}));
  EXPECT_EQ(decode_classes(png_of(0, 1, 3, {"\xa0"}), "m").pixels, (Classes{1, 0, 1}));
  EXPECT_EQ(decode_classes(png_of(0, 4, 3, {"\x3f\x10"}), "m").pixels, (Classes{3, 15, 1}));
  const std::string palette("\0\0\0\x80\0\0\0\x80\0\x80\0\0", 12);  // the last one is the second again
  EXPECT_EQ(decode_classes(png_of(3, 8, 4, {std::string("\x02\x00\x01\x03", 4)}, palette), "m").pixels,
            (Classes{2, 0, 1, 1}));
  EXPECT_EQ(decode_classes(png_of(3, 2, 3, {"\x90"}, palette), "m").pixels, (Classes{2, 1, 0}));
  const auto refusal = [](const std::string& bytes) {
    return message_of<BrokenImage>([&] { decode_classes(bytes, "m.png"); });
  };
  const Image colours = test::random_image(4, 4, 3, 1);
  EXPECT_EQ(
      refusal(test::png(colours)),
      "[image] 'm.png' is no image of classes: a PNG of greys with up to 8 bits, or with a palette, expected, got "
      "colours");
  EXPECT_NE(refusal(png_of(0, 16, 1, {"\1\2"})).find("got 16 bits"), std::string::npos);
  EXPECT_EQ(refusal(test::jpeg(colours)), "[image] 'm.png' is a JPEG, which changes classes at their borders; use PNG");
  EXPECT_NE(refusal("no image").find("is neither JPEG nor PNG"), std::string::npos);
}

struct Sample {
  std::vector<float> pixels;
  std::vector<int64_t> classes;
};
Sample sample_of(const Dataset& data, int64_t index, const Draw& draw = {}) {
  Sample sample;
  sample.pixels.resize(static_cast<size_t>(data.input_shape().numel()));
  sample.classes.resize(static_cast<size_t>(data.target_shape().numel()));
  data.read(index, draw, {sample.pixels.data(), sample.classes.data()});
  return sample;
}

// Pixels of class k have the colours 50 k + 50; a tenth of the pixels have no class, and the colour 250.
void write_pair(const TemporaryFolder& folder, const std::string& image, const std::string& mask, int64_t h, int64_t w,
                uint64_t key) {
  const Image random = test::random_image(h, w, 1, key);
  Image colours(h, w, 3), classes(h, w, 1);
  for (size_t at = 0; at < random.pixels.size(); ++at) {
    classes.pixels[at] = random.pixels[at] < 25 ? kNoClass : static_cast<uint8_t>(random.pixels[at] % 4);
    for (size_t c = 0; c < 3; ++c)
      colours.pixels[3 * at + c] =
          classes.pixels[at] == kNoClass ? 250 : static_cast<uint8_t>(50 * classes.pixels[at] + 50);
  }
  folder.write(image, test::png(colours));
  folder.write(mask, test::png(classes));
}

DataConfig plain(const std::string& path) {
  return {.kind = "image_masks", .path = path, .mean = {0, 0, 0}, .std = {1, 1, 1}, .classes = 4};
}

// Counts pixels by what they show: a class, none, or a place outside the image.
struct Counts {
  int classes = 0, none = 0, outside = 0;
};
Counts expect_alike(const Sample& sample) {
  Counts counts;
  for (size_t at = 0; at < sample.classes.size(); ++at) {
    const auto colour = static_cast<int>(sample.pixels[3 * at] * 255 + 0.5f);
    if (sample.classes[at] != kIgnoredClass) {
      EXPECT_EQ(colour, 50 * sample.classes[at] + 50);
      ++counts.classes;
    } else {
      EXPECT_TRUE(colour == 250 || colour == 0) << colour;
      ++(colour == 250 ? counts.none : counts.outside);
    }
  }
  return counts;
}

TEST(MaskImages, ColoursAndClassesAreCutAlike) {
  const TemporaryFolder folder;
  for (int i = 0; i < 12; ++i)
    write_pair(folder, fmt::format("set/images/{}.png", i), fmt::format("set/masks/{}.png", i), 9, 9,
               static_cast<uint64_t>(i));
  DataConfig config = plain(folder / "set");
  config.crop_padding = 3;
  config.flip = true;
  const auto data = open_dataset(config, Split::train);
  EXPECT_EQ(data->size(), 11);  // one is held out
  EXPECT_EQ(open_dataset(config, Split::validation)->size(), 1);
  EXPECT_EQ(data->input_shape(), (Shape{9, 9, 3}));
  EXPECT_EQ(data->target_shape(), (Shape{9, 9}));
  EXPECT_EQ(data->classes(), 4);
  Counts all;
  std::vector<Sample> seen;
  for (int64_t i = 0; i < data->size(); ++i) {
    EXPECT_EQ(expect_alike(sample_of(*data, i)).outside, 0) << "not augmented";
    const Sample sample = sample_of(*data, i, {.seed = 5, .augment = true});
    const Counts counts = expect_alike(sample);
    all.classes += counts.classes, all.none += counts.none, all.outside += counts.outside;
    EXPECT_NE(sample.classes, sample_of(*data, i, {.seed = 5, .epoch = 1, .augment = true}).classes);
  }
  EXPECT_GT(all.classes, 400);
  EXPECT_GT(all.none, 30);
  EXPECT_GT(all.outside, 50);
  config.padding_mode = "reflect";
  const auto reflected = open_dataset(config, Split::train);
  for (int64_t i = 0; i < reflected->size(); ++i)
    EXPECT_EQ(expect_alike(sample_of(*reflected, i, {.seed = 5, .augment = true})).outside, 0);
}

// The left part of an image is of class 0 and black, the right one of class 1 and white.
TEST(MaskImages, ScaledClassesChangeWhereColoursDo) {
  const TemporaryFolder folder;
  const int64_t h = 40, w = 60, border = 22;
  Image colours(h, w, 3), classes(h, w, 1);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = border; x < w; ++x) {
      classes.pixels[static_cast<size_t>(y * w + x)] = 1;
      for (int64_t c = 0; c < 3; ++c) colours.pixels[static_cast<size_t>((y * w + x) * 3 + c)] = 255;
    }
  for (const char* part : {"train", "val"}) {
    folder.write(fmt::format("set/images/{}/a.png", part), test::png(colours));
    folder.write(fmt::format("set/annotations/{}/a.png", part), test::png(classes));
  }
  DataConfig config = plain(folder / "set");
  config.image_size = 16;
  config.random_resized_crop = config.flip = true;
  const auto data = open_dataset(config, Split::train);
  int with_border = 0, mirrored = 0;
  for (int64_t epoch = 0; epoch < 60; ++epoch) {
    const Sample sample = sample_of(*data, 0, {.seed = 3, .epoch = epoch, .augment = true});
    for (size_t at = 0; at < sample.classes.size(); ++at) {
      const float value = sample.pixels[3 * at];
      if (value > 0.5f) EXPECT_EQ(sample.classes[at], 1) << epoch << ": " << at;
      else EXPECT_EQ(sample.classes[at], value < 0.5f ? 0 : sample.classes[at]) << epoch << ": " << at;
    }
    with_border += sample.classes[0] != sample.classes[15];
    mirrored += sample.classes[0] > sample.classes[15];
  }
  EXPECT_GT(with_border, 10);
  EXPECT_GT(mirrored, 2);
  EXPECT_LT(mirrored, with_border);
  const Sample whole = sample_of(*open_dataset(config, Split::validation), 0);
  // Scaled by 16/40 to 16 x 24, of which columns 4 to 19 are shown: column x is of stored pixel (2 x + 9) 60 / 48.
  for (int64_t x = 0; x < 16; ++x)
    EXPECT_EQ(whole.classes[static_cast<size_t>(x)], (2 * x + 9) * 60 / 48 >= border) << x;
}

TEST(MaskImages, BadSetsAreNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](DataConfig config) {
    return message_of<Failure>([&] { sample_of(*open_dataset(config, Split::train), 0); });
  };
  folder.write("none/images/a.txt", "");
  EXPECT_NE(refusal(plain(folder / "none")).find("has no training images; expected images/<name>.jpg and masks/"),
            std::string::npos);
  write_pair(folder, "one/train/images/b.png", "one/train/masks/a.png", 8, 8, 1);
  EXPECT_NE(refusal(plain(folder / "one")).find("b.png' has no mask: there is no '"), std::string::npos);
  write_pair(folder, "sizes/train/images/a.png", "sizes/train/masks/b_mask.png", 8, 8, 1);
  write_pair(folder, "sizes/train/images/b.png", "sizes/train/masks/a.png", 8, 9, 1);
  write_pair(folder, "sizes/val/images/a.png", "sizes/val/masks/a.png", 8, 8, 1);
  EXPECT_NE(refusal(plain(folder / "sizes")).find("a.png' is 9 x 8 pixels, but its image 8 x 8"), std::string::npos);
  write_pair(folder, "many/train/images/a.png", "many/train/masks/a.png.png", 8, 8, 1);
  write_pair(folder, "many/val/images/a.png", "many/val/masks/a.png", 8, 8, 1);
  DataConfig few = plain(folder / "many");
  few.classes = 3;
  const std::string told = refusal(few);
  EXPECT_NE(told.find("a.png.png' has the class 3 at row "), std::string::npos) << told;
  EXPECT_NE(told.find("; data.classes = 3"), std::string::npos);
  few.classes = 256;
  EXPECT_EQ(message_of<SettingError>([&] { open_dataset(few, Split::train); }),
            "data.classes must be from 2 to 255, got 256");
}

}  // namespace
}  // namespace elinvar
