// Images that are given by name are prepared as those of a validation split.
#include "data/image_files.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/data/image_writer.h"
#include "tests/data/tar_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

using Pixels = std::vector<float>;

Pixels pixels_of(const Dataset& data, int64_t index) {
  Pixels pixels(static_cast<size_t>(data.input_shape().numel()), -1.0f);
  int64_t target = -1;
  data.read(index, {}, {pixels.data(), &target});
  return pixels;
}

class ImageFilesTest : public testing::Test {
 protected:
  std::string write(const std::string& name, int64_t h, int64_t w, uint64_t key) {
    const std::string bytes = png(random_image(h, w, 3, key));
    folder_.write(name, bytes);
    return (folder_ / name).string();
  }
  std::string usage(const DataConfig& config, const SampleForm& form, const std::vector<std::string>& paths) {
    return message_of<UsageError>([&] { ImageFiles(config, form, paths); });
  }
  TemporaryFolder folder_;
};

TEST_F(ImageFilesTest, EqualThoseOfAValidationSplit) {
  write("set/train/cat/0.png", 20, 14, 1);
  write("set/train/dog/0.png", 9, 31, 2);
  write("set/val/cat/a.png", 17, 23, 3);
  write("set/val/dog/b.png", 40, 11, 4);
  const DataConfig config{.kind = "image_folder",
                          .path = folder_ / "set",
                          .image_size = 8,
                          .resize = 10,
                          .crop_padding = 2,
                          .flip = true,
                          .brightness = 0.5};
  const auto validation = open_dataset(config, Split::validation);
  const ImageFiles files(config, form_of(*validation), {folder_ / "set/val"});
  ASSERT_EQ(files.size(), 2);
  EXPECT_EQ(files.input_shape(), validation->input_shape());
  EXPECT_EQ(files.class_names(), (std::vector<std::string>{"cat", "dog"}));
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(pixels_of(files, i), pixels_of(*validation, i)) << i;
  EXPECT_EQ(files.name(0), folder_ / "set/val/cat/a.png");
}

TEST_F(ImageFilesTest, AnArchiveAFolderAndFilesGiveTheSame) {
  const std::string a = write("some/a.png", 12, 9, 1), b = write("some/deeper/b.png", 9, 9, 2);
  folder_.write("some/note.txt", "no image");
  folder_.write("some.tar", TarWriter().member("a.png", png(random_image(12, 9, 3, 1))).finish());
  const DataConfig config{.kind = "image_folder", .image_size = 8};
  const SampleForm form{.shape = {8, 8, 3}, .classes = 2};
  const ImageFiles files(config, form, {b, folder_ / "some", a, folder_ / "some.tar"});
  ASSERT_EQ(files.size(), 5);
  EXPECT_EQ(pixels_of(files, 0), pixels_of(files, 2));
  EXPECT_EQ(pixels_of(files, 1), pixels_of(files, 3));
  EXPECT_EQ(pixels_of(files, 1), pixels_of(files, 4));
}

TEST_F(ImageFilesTest, WithoutAnImageSizeImagesAreScaledToTheStoredSquare) {
  const std::string other = write("other.png", 30, 22, 1), same = write("same.png", 8, 8, 2);
  const DataConfig config{.kind = "cifar10"};
  const ImageFiles square(config, {.shape = {8, 8, 3}, .classes = 10}, {other, same});
  DataConfig sized = config;
  sized.image_size = 8;
  const ImageFiles scaled(sized, {.shape = {8, 8, 3}, .classes = 10}, {other, same});
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(pixels_of(square, i), pixels_of(scaled, i)) << i;

  const ImageFiles rectangle(config, {.shape = {8, 6, 3}, .classes = 10}, {same});
  EXPECT_EQ(pixels_of(rectangle, 0), Pixels(8 * 6 * 3, 0.0f));
  EXPECT_NE(rectangle.failure(0).find("is 8 x 8, and the network sees images of 8 x 6"), std::string::npos);
}

TEST_F(ImageFilesTest, GreyNetworksSeeGreyImages) {
  const std::string path = write("colours.png", 10, 10, 1);
  const ImageFiles files({.kind = "mnist"}, {.shape = {10, 10, 1}, .classes = 10}, {path});
  EXPECT_EQ(pixels_of(files, 0).size(), 100u);
  EXPECT_EQ(files.failure(0), "");
}

TEST_F(ImageFilesTest, AnUnreadableImageIsToldAndTheOthersAreRead) {
  const std::string good = write("good.png", 8, 8, 1);
  const std::string bad = folder_.write("bad.png", "no image at all");
  const DataConfig config{.kind = "image_folder", .image_size = 8};
  const ImageFiles files(config, {.shape = {8, 8, 3}, .classes = 2}, {bad, good});
  EXPECT_EQ(pixels_of(files, 0), Pixels(8 * 8 * 3, 0.0f));
  EXPECT_NE(pixels_of(files, 1), Pixels(8 * 8 * 3, 0.0f));
  EXPECT_NE(files.failure(0).find("bad.png' is neither JPEG nor PNG"), std::string::npos) << files.failure(0);
  EXPECT_EQ(files.failure(1), "");
}

TEST_F(ImageFilesTest, RefusesWhatCannotBeClassified) {
  const std::string image = write("set/a.png", 8, 8, 1);
  folder_.write("texts/a.txt", "a");
  const SampleForm form{.shape = {8, 8, 3}, .classes = 2};
  const DataConfig config{.kind = "image_folder", .image_size = 8};
  EXPECT_NE(usage(config, form, {folder_ / "absent.png"}).find("there is no "), std::string::npos);
  EXPECT_NE(usage(config, form, {folder_ / "texts"}).find("has no .jpg, .jpeg or .png"), std::string::npos);
  EXPECT_NE(usage({.kind = "text"}, form, {image}).find("are no images"), std::string::npos);
  const DataConfig deep{.kind = "synthetic", .image_size = 8, .channels = 5};
  EXPECT_NE(usage(deep, {.shape = {8, 8, 5}, .classes = 2}, {image}).find("images of 5 channels"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
