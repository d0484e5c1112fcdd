// A folder of decoded images: reading gives the same as decoding, whatever happens to the files.
#include "data/image_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "data/loader.h"
#include "tensor/base/file.h"
#include "tensor/state.h"
#include "tests/data/image_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

TEST(ImageCache, GivesWhatDecodingGivesAndKeepsIt) {
  const TemporaryFolder folder;
  const auto notices = std::make_shared<Notices>();
  const ImageCache cache(folder / "cache", notices);
  const std::string photo = jpeg(random_image(20, 30, 3, 1)), other = jpeg(random_image(20, 30, 3, 2));
  const Image image = decode_image(photo, 3, "a");
  for (int round = 0; round < 3; ++round) {
    const Image kept = cache.decode(photo, 3, "a");
    EXPECT_EQ(kept.pixels, image.pixels);
    EXPECT_EQ(kept.height, 20);
    EXPECT_EQ(kept.width, 30);
    EXPECT_EQ(kept.channels, 3);
  }
  EXPECT_EQ(files_in(folder / "cache").size(), 1u);
  EXPECT_EQ(cache.decode(other, 3, "a").pixels, decode_image(other, 3, "b").pixels);
  EXPECT_EQ(cache.decode(photo, 1, "a").pixels, decode_image(photo, 1, "a").pixels);
  EXPECT_EQ(files_in(folder / "cache").size(), 3u);
  EXPECT_NE(message_of<BrokenImage>([&] { cache.decode("GIF", 3, "c.gif"); }).find("c.gif"), std::string::npos);
  EXPECT_TRUE(notices->take().empty());
}

TEST(ImageCache, IsReallyReadAndNoticesDamage) {
  const TemporaryFolder folder;
  const ImageCache cache(folder / "cache", std::make_shared<Notices>());
  const std::string photo = jpeg(random_image(12, 10, 3, 1));
  const Image image = cache.decode(photo, 3, "a");
  const fs::path file = files_in(folder / "cache").at(0);
  const std::string good = read_file(file);
  const std::string other = jpeg(random_image(12, 10, 3, 2));
  const Image other_image = cache.decode(other, 3, "b");
  for (const fs::path& path : files_in(folder / "cache"))
    if (path != file) replace_file(file, read_file(path));
  EXPECT_EQ(cache.decode(photo, 3, "a").pixels, other_image.pixels) << "what the file has is not decoded again";
  for (size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] ^= 0x10;
    replace_file(file, bad);
    EXPECT_EQ(cache.decode(photo, 3, "a").pixels, image.pixels) << at;
    EXPECT_EQ(read_file(file), good) << at;
  }
  for (const size_t size : {size_t{0}, size_t{20}, size_t{56}, good.size() - 1}) {
    replace_file(file, good.substr(0, size));
    EXPECT_EQ(cache.decode(photo, 3, "a").pixels, image.pixels);
    EXPECT_EQ(read_file(file), good);
  }
}

TEST(ImageCache, AFolderThatCannotBeWrittenIsToldOnce) {
  const TemporaryFolder folder;
  folder.write("file", "in the way");
  const auto notices = std::make_shared<Notices>();
  const ImageCache cache(folder / "file", notices);
  const std::string photo = jpeg(random_image(12, 10, 3, 1));
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(cache.decode(photo, 3, "a").pixels, decode_image(photo, 3, "a").pixels);
  const std::vector<std::string> told = notices->take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("no longer kept in data.cache_dir"), std::string::npos) << told[0];
}

TEST(ImageCache, ThreadsShareIt) {
  const TemporaryFolder folder;
  std::vector<std::string> photos;
  for (uint64_t i = 0; i < 5; ++i) photos.push_back(jpeg(random_image(30, 30, 3, i)));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        const ImageCache own(folder / "cache", std::make_shared<Notices>());
        for (int round = 0; round < 20; ++round)
          for (const std::string& photo : photos)
            wrong += own.decode(photo, 3, "a").pixels != decode_image(photo, 3, "a").pixels;
      });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files_in(folder / "cache").size(), 5u);  // and no other files
}

TEST(ImageCache, ADatasetIsTheSameWithIt) {
  const TemporaryFolder folder;
  for (int i = 0; i < 8; ++i)
    folder.write(fmt::format("set/{}/{}.jpg", i % 2, i), jpeg(random_image(20, 20 + i, 3, static_cast<uint64_t>(i))));
  DataConfig config{.kind = "image_folder", .path = (folder / "set").string(), .image_size = 12};
  config.random_resized_crop = true;
  config.validation_fraction = 0.125;
  config.cache_mb = 0;
  const auto all = [&](const DataConfig& c) {
    Loader loader(open_dataset(c, Split::train), {.global_batch = 3, .threads = 2});
    Hasher hasher;
    for (int64_t step = 0; step < 6; ++step) hasher.add(digest(loader.batch(step, 0).input));
    return hasher.digest();
  };
  const Digest plain = all(config);
  config.cache_dir = (folder / "cache").string();
  EXPECT_EQ(all(config), plain);
  EXPECT_EQ(files_in(folder / "cache").size(), 7u);
  EXPECT_EQ(all(config), plain);
}

}  // namespace
}  // namespace elinvar::test
