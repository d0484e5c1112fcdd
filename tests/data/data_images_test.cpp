// Image formats: their contents, equality of folder and tar, and the messages about damaged ones.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "data/loader.h"
#include "tensor/base/check.h"
#include "tests/data/image_writer.h"
#include "tests/data/tar_writer.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

std::string big_endian(std::initializer_list<uint32_t> words) {
  std::string bytes;
  for (uint32_t word : words)
    for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift & 0xFF);
  return bytes;
}

std::string gzip(const std::string& bytes) {
  std::string packed(bytes.size() + 1000, '\0');
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  deflate(&z, Z_FINISH);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

struct Sample {
  std::vector<float> pixels;
  int64_t label = -1;
};

Sample sample(const Dataset& dataset, int64_t index, const Draw& draw = {}) {
  Sample s{std::vector<float>(static_cast<size_t>(dataset.input_shape().numel())), -1};
  dataset.read(index, draw, {s.pixels.data(), &s.label});
  return s;
}

// Pixels as they are stored: (p / 255 - 0) / 1.
DataConfig plain(std::string kind, std::string path, int channels) {
  const auto n = static_cast<size_t>(channels);
  return {.kind = std::move(kind),
          .path = std::move(path),
          .mean = std::vector<double>(n, 0.0),
          .std = std::vector<double>(n, 1.0)};
}

std::string usage(const DataConfig& config, Split split = Split::train) {
  return message_of<UsageError>([&] { open_dataset(config, split); });
}
std::string failure(const DataConfig& config, Split split = Split::train) {
  return message_of<Failure>([&] { open_dataset(config, split); });
}

std::string cifar_records(int count, uint32_t first_label) {
  std::string bytes;
  for (int r = 0; r < count; ++r) {
    bytes += static_cast<char>((first_label + static_cast<uint32_t>(r)) % 10);
    for (int c = 0; c < 3; ++c)
      for (int i = 0; i < 1024; ++i) bytes += static_cast<char>((i + 50 * c + r) % 256);
  }
  return bytes;
}

TEST(Cifar10, BinaryFormInPlanes) {
  const TemporaryFolder folder;
  folder.write("cifar-10-batches-bin/data_batch_1.bin", cifar_records(3, 4));
  folder.write("cifar-10-batches-bin/data_batch_2.bin", cifar_records(2, 8));
  folder.write("cifar-10-batches-bin/test_batch.bin", cifar_records(4, 1));
  for (const std::string& path : {folder.path(), (folder / "cifar-10-batches-bin").string()}) {
    const DataConfig config = plain("cifar10", path, 3);
    const auto train = open_dataset(config, Split::train), test = open_dataset(config, Split::validation);
    EXPECT_EQ(train->size(), 5);
    EXPECT_EQ(test->size(), 4);
    EXPECT_EQ(train->classes(), 10);
    EXPECT_EQ(train->class_names()[6], "frog");
    EXPECT_EQ(train->input_shape(), (Shape{32, 32, 3}));
    const Sample s = sample(*train, 4);
    EXPECT_EQ(s.label, 9);
    for (int i = 0; i < 1024; ++i)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(s.pixels[static_cast<size_t>(3 * i + c)], static_cast<float>((i + 50 * c + 1) % 256) / 255.0f);
    EXPECT_EQ(digest(*test), digest(*open_dataset(config, Split::test)));
  }
}

TEST(Cifar10, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  folder.write("short/data_batch_1.bin", cifar_records(2, 0).substr(0, 5000));
  std::string mislabelled = cifar_records(1, 0);
  mislabelled[0] = 11;
  folder.write("label/data_batch_1.bin", mislabelled);
  folder.write("few/x/1.png", png(random_image(32, 32, 3, 1)));
  folder.write("none/readme", "");
  EXPECT_NE(failure(plain("cifar10", folder / "short", 3))
                .find("data_batch_1.bin' has 5000 bytes, expected a multiple of 3073"),
            std::string::npos);
  EXPECT_NE(failure(plain("cifar10", folder / "label", 3)).find("record 0 has label 11"), std::string::npos);
  EXPECT_NE(failure(plain("cifar10", folder / "few", 3))
                .find("images of 1 classes, expected data_batch_*.bin or images of 10"),
            std::string::npos);
  EXPECT_NE(failure(plain("cifar10", folder / "none", 3)).find("holds no .jpg"), std::string::npos);
  EXPECT_NE(failure(plain("cifar10", folder / "absent", 3)).find("does not exist"), std::string::npos);
}

std::string idx_images(uint32_t n, uint32_t h, uint32_t w) {
  std::string bytes = big_endian({0x803, n, h, w});
  for (uint32_t i = 0; i < n * h * w; ++i) bytes += static_cast<char>(i % 256);
  return bytes;
}

std::string idx_labels(uint32_t n) {
  std::string bytes = big_endian({0x801, n});
  for (uint32_t i = 0; i < n; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

TEST(Mnist, PlainAndCompressedAreTheSame) {
  const TemporaryFolder folder;
  folder.write("plain/train-images-idx3-ubyte", idx_images(30, 6, 5));
  folder.write("plain/train-labels.idx1-ubyte", idx_labels(30));
  folder.write("plain/t10k-images-idx3-ubyte", idx_images(7, 6, 5));
  folder.write("plain/t10k-labels-idx1-ubyte", idx_labels(7));
  folder.write("gz/train-images-idx3-ubyte.gz", gzip(idx_images(30, 6, 5)));
  folder.write("gz/train-labels-idx1-ubyte.gz", gzip(idx_labels(30)));
  const auto a = open_dataset(plain("mnist", folder / "plain", 1), Split::train);
  EXPECT_EQ(a->size(), 30);
  EXPECT_EQ(a->classes(), 10);
  EXPECT_EQ(a->input_shape(), (Shape{6, 5, 1}));
  const Sample s = sample(*a, 13);
  EXPECT_EQ(s.label, 3);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(s.pixels[i], static_cast<float>((13 * 30 + i) % 256) / 255.0f);
  EXPECT_EQ(open_dataset(plain("mnist", folder / "plain", 1), Split::validation)->size(), 7);

  // Without a separate validation part, validation samples are held out of the training set.
  const auto train = open_dataset(plain("mnist", folder / "gz", 1), Split::train);
  const auto held = open_dataset(plain("mnist", folder / "gz", 1), Split::validation);
  EXPECT_EQ(train->size(), 27);
  EXPECT_EQ(held->size(), 3);
  std::set<std::vector<float>> images;
  for (int64_t i = 0; i < 27; ++i) images.insert(sample(*train, i).pixels);
  for (int64_t i = 0; i < 3; ++i) images.insert(sample(*held, i).pixels);
  std::set<std::vector<float>> all;
  for (int64_t i = 0; i < 30; ++i) all.insert(sample(*a, i).pixels);
  EXPECT_EQ(images, all);
  EXPECT_NE(usage(plain("mnist", folder / "gz", 1), Split::test).find("no test images"), std::string::npos);
}

TEST(Mnist, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& images, const std::string& labels) {
    folder.write("train-images-idx3-ubyte", images);
    folder.write("train-labels-idx1-ubyte", labels);
    return failure(plain("mnist", folder.path(), 1));
  };
  const std::string images = idx_images(10, 4, 4), labels = idx_labels(10), packed = gzip(images);
  EXPECT_EQ(error(images, labels), "");
  EXPECT_NE(error(images.substr(0, 100), labels).find("has 100 bytes, its header says 176: is it truncated?"),
            std::string::npos);
  EXPECT_NE(error(images + "x", labels).find("has 177 bytes"), std::string::npos);
  EXPECT_NE(error("abc", labels).find("expected an idx header"), std::string::npos);
  EXPECT_NE(error(labels + images, labels).find("begins with 0x00000801, expected 0x00000803"), std::string::npos);
  EXPECT_NE(error(big_endian({0x803, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}), labels).find("states an extent"),
            std::string::npos);
  EXPECT_NE(error(images, idx_labels(9)).find("10 images"), std::string::npos);
  EXPECT_NE(error(packed.substr(0, packed.size() / 2), labels).find("damaged or truncated"), std::string::npos);
  EXPECT_NE(error(packed.substr(0, 20) + "zz" + packed.substr(22), labels).find("damaged or truncated"),
            std::string::npos);
  EXPECT_NE(failure(plain("mnist", folder.write("empty/x", ""), 1)).find("no tar archive"), std::string::npos);
  EXPECT_NE(failure(plain("mnist", folder / "empty", 1)).find("lacks train-images"), std::string::npos);
}

// Three classes in split folders; `wrap` puts all of them into one more folder.
struct ImageFolder {
  TemporaryFolder folder;
  TarWriter tar, wrapped;
  ImageFolder() {
    uint64_t key = 0;
    for (const char* split : {"train", "val"})
      for (const char* name : {"cat", "bird", "dog"})
        for (int i = 0; i < 4; ++i) {
          const Image image = random_image(8, 8, 3, ++key);
          const std::string path = fmt::format("{}/{}/{}.{}", split, name, i, i % 2 ? "png" : "JPEG");
          const std::string bytes = i % 2 ? png(image) : jpeg(image);
          folder.write("set/" + path, bytes);
          tar.member(path, bytes);
          wrapped.member("pets/" + path, bytes);
        }
    folder.write("set/train/cat/notes.txt", "not an image");
    folder.write("set.tar", tar.finish());
    folder.write("wrapped.tar", wrapped.finish());
  }
};

TEST(ImageFolder, FolderAndTarAreTheSameSet) {
  const ImageFolder set;
  const auto on_disk = open_dataset(plain("image_folder", set.folder / "set", 3), Split::train);
  EXPECT_EQ(on_disk->size(), 12);
  EXPECT_EQ(on_disk->class_names(), (std::vector<std::string>{"bird", "cat", "dog"}));
  EXPECT_EQ(open_dataset(plain("image_folder", set.folder / "set", 3), Split::validation)->size(), 12);
  for (const char* name : {"set.tar", "wrapped.tar"}) {
    DataConfig config = plain("image_folder", set.folder / name, 3);
    const auto in_memory = open_dataset(config, Split::train);
    config.cache_mb = 0;
    const auto in_tar = open_dataset(config, Split::train);
    for (int64_t i = 0; i < 12; ++i) {
      const Sample a = sample(*on_disk, i), b = sample(*in_memory, i), c = sample(*in_tar, i);
      EXPECT_EQ(a.label, i / 4);
      EXPECT_EQ(b.label, a.label);
      EXPECT_EQ(b.pixels, a.pixels);
      EXPECT_EQ(c.pixels, a.pixels);
    }
    EXPECT_EQ(digest(*in_memory), digest(*in_tar));
  }
}

TEST(ImageFolder, ClassesWithoutSplitsAreHeldOut) {
  const TemporaryFolder folder;
  for (int i = 0; i < 20; ++i)
    folder.write(fmt::format("all/{}/{}.png", i % 2 ? "odd" : "even", i),
                 png(random_image(6, 6, 3, static_cast<uint64_t>(i))));
  DataConfig config = plain("image_folder", folder.path(), 3);
  for (const std::string& path : {folder.path(), (folder / "all").string()}) {
    config.path = path;
    EXPECT_EQ(open_dataset(config, Split::train)->size(), 18);
    EXPECT_EQ(open_dataset(config, Split::validation)->size(), 2);
    EXPECT_EQ(open_dataset(config, Split::train)->class_names(), (std::vector<std::string>{"even", "odd"}));
  }
  config.validation_fraction = 0.25;
  EXPECT_EQ(open_dataset(config, Split::train)->size(), 15);
  config.validation_fraction = 0.01;
  EXPECT_NE(usage(config).find("leaves 20 and 0"), std::string::npos);
}

TEST(ImageFolder, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string good = png(random_image(6, 6, 3, 1));
  folder.write("flat/1.png", good);
  folder.write("extra/train/cat/1.png", good);
  folder.write("extra/val/cow/1.png", good);
  folder.write("corrupt/train/cat/1.png", good);
  folder.write("corrupt/train/cat/2.png", good.substr(0, 60));
  folder.write("corrupt/train/cat/3.png", "");
  folder.write("sizes/train/cat/1.png", good);
  folder.write("sizes/train/cat/2.png", png(random_image(6, 7, 3, 1)));
  folder.write("sizes/val/cat/2.png", good);
  folder.write("corrupt/val/cat/1.png", good);
  const auto config = [&](const char* name) { return plain("image_folder", folder / name, 3); };
  EXPECT_NE(failure(config("flat")).find("1.png' lies in no folder of a class"), std::string::npos);
  EXPECT_NE(
      failure(config("extra"), Split::validation).find("val/cow/1.png' is of a class that has no training images"),
      std::string::npos);
  EXPECT_NE(failure(config("corrupt")).find("train/cat/2.png' is damaged"), std::string::npos);
  DataConfig lazy = config("corrupt");
  lazy.cache_mb = 0;
  Loader loader(open_dataset(lazy, Split::train), {.global_batch = 3, .threads = 2});
  EXPECT_NE(message_of<Failure>([&] { loader.batch(0, 0); }).find(".png' is"), std::string::npos);
  const auto sizes = open_dataset(config("sizes"), Split::train);
  EXPECT_NE(message_of<Failure>([&] {
              sample(*sizes, 1);
            }).find("2.png' is 6 x 7, the first image 6 x 6: set data.image_size"),
            std::string::npos);
  EXPECT_NE(failure(config("sizes/train/cat/1.png")).find("no tar archive"), std::string::npos);
}

TEST(ImageFolder, LosesNoClassAndNoFileSilently) {
  const TemporaryFolder folder;
  const std::string good = png(random_image(6, 6, 3, 1));
  for (const char* name : {"a/train/cat/1.png", "a/train/dog/1.png", "a/val/cat/1.png"}) folder.write(name, good);
  folder.write("a/train/dog/2.webp", "RIFF");
  folder.write("a/train/dog/.thumbnail", "");
  folder.write("a/train/labels.csv", "");
  const auto config = [&](const char* name) { return plain("image_folder", folder / name, 3); };
  const auto set = open_dataset(config("a"), Split::train);
  EXPECT_EQ(set->classes(), 2);
  const std::vector<std::string> notices = set->take_notices();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("1 file is skipped"), std::string::npos) << notices[0];
  EXPECT_NE(notices[0].find("train/dog/2.webp"), std::string::npos) << notices[0];

  folder.write("a/train/notes/1.txt", "");
  EXPECT_EQ(open_dataset(config("a"), Split::train)->classes(), 2) << "a folder without images is no class";
  const auto validation = open_dataset(config("a"), Split::validation);
  EXPECT_EQ(validation->take_notices().size(), 1u) << "one for the training part, which names the classes";
  folder.write("a/train/cow/1.webp", "RIFF");
  const std::string lost = failure(config("a"));
  EXPECT_NE(lost.find("the class 'cow' has no .jpg, .jpeg or .png"), std::string::npos) << lost;
  EXPECT_NE(lost.find("train/cow/1.webp"), std::string::npos) << lost;
}

TEST(SyntheticImages, AreDeterministicAndCanBeToldApart) {
  const DataConfig config{.kind = "synthetic", .image_size = 16, .size = 200, .classes = 5};
  const auto train = open_dataset(config, Split::train), again = open_dataset(config, Split::train);
  const auto validation = open_dataset(config, Split::validation);
  EXPECT_EQ(train->size(), 200);
  EXPECT_EQ(validation->size(), 20);
  DataConfig other = config;
  other.data_seed = 1;
  EXPECT_NE(digest(*train), digest(*open_dataset(other, Split::train)));
  EXPECT_NE(digest(*train), digest(*validation));

  // The nearest class mean of the training images classifies most of the validation images.
  const auto pixels = static_cast<size_t>(train->input_shape().numel());
  std::vector<std::vector<float>> mean(5, std::vector<float>(pixels));
  for (int64_t i = 0; i < 200; ++i) {
    const Sample s = sample(*train, i);
    EXPECT_EQ(s.pixels, sample(*again, i).pixels);
    for (size_t p = 0; p < pixels; ++p) mean[static_cast<size_t>(s.label)][p] += s.pixels[p] / 40;
  }
  int right = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const Sample s = sample(*validation, i);
    std::vector<float> distance(5);
    for (size_t k = 0; k < 5; ++k)
      for (size_t p = 0; p < pixels; ++p) distance[k] += (s.pixels[p] - mean[k][p]) * (s.pixels[p] - mean[k][p]);
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == s.label;
  }
  EXPECT_GE(right, 17);
}

TEST(SyntheticImages, RefusesSettingsWithoutSense) {
  EXPECT_NE(usage({.kind = "synthetic", .size = 0}).find("size must be"), std::string::npos);
  EXPECT_NE(usage({.kind = "synthetic", .classes = 0}).find("classes must be"), std::string::npos);
  EXPECT_NE(usage({.kind = "synthetic", .channels = 0}).find("channels must be"), std::string::npos);
  EXPECT_NE(usage({.kind = "synthetic", .noise = 2}).find("noise must be"), std::string::npos);
}

// The environment variable ELINVAR_DATA names a folder with real data sets: cifar10-jpeg.tar, CIFAR-10 as images with a
// folder per class below train/ and test/.
TEST(RealData, Cifar10AsImagesInATar) {
  const char* folder = std::getenv("ELINVAR_DATA");
  if (!folder) GTEST_SKIP() << "ELINVAR_DATA names no folder of real data";
  const std::string path = (std::filesystem::path(folder) / "cifar10-jpeg.tar").string();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  DataConfig config{.kind = "cifar10", .path = path};
  const auto test = open_dataset(config, Split::validation);
  EXPECT_EQ(test->size(), 10000);
  EXPECT_EQ(test->classes(), 10);
  config.cache_mb = 0;
  EXPECT_EQ(open_dataset(config, Split::train)->size(), 50000);
}

}  // namespace
}  // namespace elinvar::test
