// WebDataset shards: the files that a path names, the contents of an index, and equality with reading image files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/loader.h"
#include "data/shard_index.h"
#include "data/shards.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/state.h"
#include "tests/data/image_writer.h"
#include "tests/data/tar_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

std::string small_png(int key) { return png(random_image(6, 5, 3, static_cast<uint64_t>(key))); }

// Writes `count` samples from `first` on; sample i has label i % 3.
std::string shard(int first, int count) {
  TarWriter tar;
  for (int i = first; i < first + count; ++i) {
    tar.member(fmt::format("n0{}/{:04}.cls", i % 3, i), fmt::format("{}\n", i % 3));
    tar.member(fmt::format("n0{}/{:04}.json", i % 3, i), fmt::format(R"({{"label": {}, "name": "x"}})", i));
    tar.member(fmt::format("n0{}/{:04}.PNG", i % 3, i), small_png(i));
  }
  return tar.finish();
}

DataConfig config_of(const std::string& path) {
  DataConfig config{.kind = "webdataset", .path = path, .mean = {0, 0, 0}, .std = {1, 1, 1}};
  config.cache_mb = 0;
  return config;
}

std::pair<std::vector<float>, int64_t> read(const Dataset& data, int64_t i) {
  std::pair<std::vector<float>, int64_t> sample(std::vector<float>(6 * 5 * 3), -1);
  data.read(i, {}, {sample.first.data(), &sample.second});
  return sample;
}

std::vector<float> pixels_of(int key) {
  std::vector<float> values;
  for (const uint8_t p : random_image(6, 5, 3, static_cast<uint64_t>(key)).pixels)
    values.push_back(static_cast<float>(p) / 255.0f);
  return values;
}

TEST(ShardPaths, FoldersPatternsAndFiles) {
  const TemporaryFolder folder;
  for (const char* name :
       {"a-08.tar", "a-09.tar", "a-10.tar", "b-x.tar", "more/c.tar", "a-08.tar.index", ".hidden.tar"})
    folder.write(name, "");
  const auto names = [&](const std::string& pattern) {
    std::string text;
    for (const std::string& path : shard_paths((folder / pattern).string()))
      text += fs::path(path).lexically_relative(folder.path()).string() + " ";
    return text;
  };
  EXPECT_EQ(names(""), "a-08.tar a-09.tar a-10.tar b-x.tar more/c.tar ");
  EXPECT_EQ(names("a-{08..10}.tar"), "a-08.tar a-09.tar a-10.tar ");
}

TEST(ShardPaths, BracesLieInOneAnother) {
  const TemporaryFolder folder;
  for (const char* name : {"a-08.tar", "a-09.tar", "b-x.tar", "more/c.tar", "b-x.tar.index"}) folder.write(name, "");
  const auto count = [&](const std::string& pattern) { return shard_paths((folder / pattern).string()).size(); };
  EXPECT_EQ(count("{a-{08..09},b-x,more/c}.tar"), 4u);
  EXPECT_EQ(count("{a-08,a-{08..09}}.tar"), 2u);  // each file once
  EXPECT_EQ(count("*.tar*"), 3u);
  EXPECT_EQ(count("{a-0[89],b-?}.tar"), 3u);
  EXPECT_EQ(count("a-08.tar"), 1u);
}

TEST(ShardPaths, SaysWhatIsNotThere) {
  const TemporaryFolder folder;
  folder.write("a-0.tar", "");
  folder.write("empty/x", "");
  const auto failure = [&](const std::string& pattern) {
    return message_of<Failure>([&] { shard_paths((folder / pattern).string()); });
  };
  const auto usage = [&](const std::string& pattern) {
    return message_of<UsageError>([&] { shard_paths((folder / pattern).string()); });
  };
  EXPECT_NE(failure("a-{0..2}.tar").find("a-1.tar' does not exist"), std::string::npos);
  EXPECT_NE(failure("b*.tar").find("no file matches"), std::string::npos);
  EXPECT_NE(failure("empty").find("holds no *.tar"), std::string::npos);
  EXPECT_NE(usage("a-{0..2.tar").find("a brace that is not closed"), std::string::npos);
  EXPECT_NE(usage("a-{2..0}.tar").find("{2..0} is no range"), std::string::npos);
  EXPECT_NE(usage("{0..99999}{0..99999}").find("more than 2^20 files"), std::string::npos);
}

TEST(WebDataset, ReadsTheSamplesOfAllShardsInOrder) {
  const TemporaryFolder folder;
  folder.write("set/train-0.tar", shard(0, 4));
  folder.write("set/train-1.tar", shard(4, 1));
  folder.write("set/train-2.tar", shard(5, 5));
  folder.write("set/val-0.tar", shard(20, 3));
  for (const std::string& path : {(folder / "set").string(), (folder / "set/{train-{0..2},val-0}.tar").string(),
                                  (folder / "set/*.tar").string()}) {
    const auto data = open_dataset(config_of(path), Split::train);
    ASSERT_EQ(data->size(), 10);
    EXPECT_EQ(data->classes(), 3);
    EXPECT_EQ(data->input_shape(), (Shape{6, 5, 3}));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(read(*data, i), std::pair(pixels_of(i), int64_t{i % 3})) << i;
    const auto validation = open_dataset(config_of(path), Split::validation);
    ASSERT_EQ(validation->size(), 3);
    EXPECT_EQ(read(*validation, 1), std::pair(pixels_of(21), int64_t{0}));
    DataConfig labelled = config_of(path);
    labelled.label_field = "label";
    EXPECT_EQ(open_dataset(labelled, Split::train)->classes(), 10);
  }
}

TEST(WebDataset, WithoutShardsForItValidationIsHeldOut) {
  const TemporaryFolder folder;
  folder.write("values/a.tar", shard(0, 20));
  EXPECT_EQ(open_dataset(config_of((folder / "values").string()), Split::train)->size(), 18);
  EXPECT_EQ(open_dataset(config_of((folder / "values/a.tar").string()), Split::validation)->size(), 2);
}

TEST(WebDataset, BatchesAreTheSameForAnyThreadsCacheAndFolder) {
  const TemporaryFolder folder;
  folder.write("here/train-0.tar", shard(0, 14));
  folder.write("here/train-1.tar", shard(14, 9));
  folder.write("there/train-0.tar", shard(0, 14));
  folder.write("there/train-1.tar", shard(14, 9));
  std::vector<Digest> digests;
  for (const char* place : {"here", "there"})
    for (const int threads : {0, 1, 3})
      for (const bool cached : {false, true}) {
        DataConfig config = config_of((folder / place).string());
        config.image_size = 4;
        config.random_resized_crop = config.flip = true;
        config.brightness = config.contrast = config.saturation = 0.4;
        config.hue = 0.1;
        config.validation_fraction = 0.2;
        if (cached) config.cache_mb = 1;
        if (threads == 1) config.cache_dir = (folder / "cache").string();
        LoaderOptions options{.seed = 3, .global_batch = 6, .virtual_ranks = 2};
        options.threads = threads;
        options.mixing = {.mixup = 0.4, .cutmix = 1};
        const std::shared_ptr<const Dataset> data = open_dataset(config, Split::train);
        digests.push_back(digest(*data));
        EXPECT_EQ(digests.back(), digests.front());
        Loader loader(data, options);
        Hasher hasher;
        for (int64_t step = 0; step < 8; ++step)
          for (int vrank = 0; vrank < 2; ++vrank) {
            const Batch batch = loader.batch(step, vrank);
            for (const Tensor& t : {batch.input, batch.target})
              if (batch.samples > 0) hasher.add(digest(t));
            if (batch.mixed.other.defined()) hasher.add(digest(batch.mixed.share));
          }
        EXPECT_EQ(hasher.digest().hex(), "c38d28b52a965474e78a28665d748aa1")
            << place << " " << threads << " " << cached;
      }
}

TEST(ShardIndex, IsKeptUntilTheShardChanges) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.tar", shard(0, 5));
  const auto why = [&](const ShardOptions& options = {}) { return ShardIndex(path, options).made_because(); };
  EXPECT_EQ(why(), "it had no index");
  EXPECT_EQ(why(), "");
  const ShardIndex index(path, {});
  ASSERT_EQ(index.size(), 5u);
  EXPECT_EQ(index.key(3), "n00/0003");
  EXPECT_EQ(index.label(2), 2);
  EXPECT_EQ(index.read_image(4), small_png(4));
  EXPECT_EQ(index.image_bytes(4), static_cast<int64_t>(small_png(4).size()));
  EXPECT_EQ(why({.label_field = "label"}), "its index was damaged, or of another shard or label");
  EXPECT_EQ(why(), "its index was damaged, or of another shard or label");
  folder.write("a.tar", shard(0, 6));
  EXPECT_EQ(why(), "its index was damaged, or of another shard or label");
  EXPECT_EQ(ShardIndex(path, {}).size(), 6u);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::seconds(1));
  EXPECT_NE(why(), "");
  EXPECT_EQ(why(), "");
}

TEST(ShardIndex, DamageToItIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.tar", shard(0, 3));
  EXPECT_NE(ShardIndex(path, {}).made_because(), "");
  const std::string good = read_file(path + ".index");
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string bad = good;
    bad[at] ^= 1;
    replace_file(path + ".index", bad);
    EXPECT_NE(ShardIndex(path, {}).made_because(), "") << at;
    EXPECT_EQ(read_file(path + ".index"), good);
  }
  for (const size_t size : {size_t{0}, size_t{10}, good.size() / 2, good.size() - 1}) {
    replace_file(path + ".index", good.substr(0, size));
    EXPECT_NE(ShardIndex(path, {}).made_because(), "");
  }
}

TEST(ShardIndex, LiesInAFolderOfOnesOwnOrNowhere) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.tar", shard(0, 3));
  folder.write("file", "in the way");
  const ShardOptions elsewhere{.label_field = "", .index_folder = folder / "indices"},
      nowhere{.label_field = "", .index_folder = folder / "file"};
  EXPECT_NE(ShardIndex(path, elsewhere).made_because(), "");
  EXPECT_EQ(ShardIndex(path, elsewhere).made_because(), "");
  EXPECT_FALSE(fs::exists(path + ".index"));
  const ShardIndex index(path, nowhere);
  EXPECT_EQ(index.size(), 3u);
  EXPECT_NE(index.not_kept_because(), "");
}

TEST(WebDataset, TellsOfIndicesThatWereMade) {
  const TemporaryFolder folder;
  folder.write("a.tar", shard(0, 30));
  folder.write("b.tar", shard(30, 30));
  const auto told = [&](const DataConfig& config) { return open_dataset(config, Split::train)->take_notices(); };
  const DataConfig config = config_of(folder.path());
  std::vector<std::string> first = told(config);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_NE(first[0].find("indexed 2 of 2 shards in"), std::string::npos) << first[0];
  EXPECT_TRUE(told(config).empty());
  folder.write("b.tar", shard(30, 31));
  first = told(config);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_NE(first[0].find("indexed 1 of 2 shards"), std::string::npos) << first[0];
  EXPECT_NE(first[0].find("b.tar': its index was damaged, or of another shard or label"), std::string::npos)
      << first[0];
  folder.write("file", "");
  DataConfig nowhere = config;
  nowhere.index_dir = (folder / "file").string();
  first = told(nowhere);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[1].find("will be indexed again next time"), std::string::npos) << first[1];
}

TEST(WebDataset, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes, const std::string& field = "") {
    folder.write("a.tar", bytes);
    return message_of<Failure>(
        [&] { ShardIndex((folder / "a.tar").string(), {.label_field = field, .index_folder = {}}); });
  };
  const std::string image = small_png(1);
  const auto with = [&](std::initializer_list<std::pair<const char*, std::string>> members) {
    TarWriter tar;
    for (const auto& [name, contents] : members) tar.member(name, contents);
    return tar.finish();
  };
  EXPECT_EQ(error(with({{"1.jpg", image}, {"1.cls", " 7\n"}, {"1.txt", ""}, {"__key__", ""}, {".x.cls", "9"}})), "");
  EXPECT_EQ(error(with({})), "");
  EXPECT_NE(error(with({{"1.jpg", image}, {"2.jpg", image}, {"2.cls", "0"}})).find("sample '1' has no .cls"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.cls", "0"}, {"1.webp", "x"}}))
                .find("sample '1' has no .jpg, .jpeg or .png beside it, but "
                      ".webp"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.png", image}, {"1.cls", "0"}})).find("has both '1.jpg' and '1.png'"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.cls", "cat"}})).find("the label 'cat', expected a whole number"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.cls", "-1"}})).find("the label '-1'"), std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.cls", std::string(100, '1')}})).find("label file of 100 bytes"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.cls", "1"}}), "label").find("has no .json"), std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.json", "{}"}}), "label").find("a .json without 'label'"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.json", "{\"label\": \"x\"}"}}), "label").find("has 'label' = \"x\""),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.json", "{\"label\": -2}"}}), "label").find("has 'label' = -2"),
            std::string::npos);
  EXPECT_NE(error(with({{"1.jpg", image}, {"1.json", "[1"}}), "label").find("a .json that is no object"),
            std::string::npos);
  EXPECT_EQ(error(with({{"1.jpg", image}, {"1.json", "{\"label\": 2}"}}), "label"), "");
  EXPECT_NE(error(shard(0, 3).substr(0, 1500)).find("a.tar'"), std::string::npos);

  const TemporaryFolder set;
  set.write("train.tar", shard(0, 2));
  set.write("val.tar", shard(2, 1));
  EXPECT_NE(message_of<Failure>([&] {
              open_dataset(config_of(set.path()), Split::validation);
            }).find("val.tar': sample 'n02/0002' has label 2, the largest in training is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
