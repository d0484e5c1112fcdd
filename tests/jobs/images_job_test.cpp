// Training on shards of photos with every augmentation: the bits depend only on the files and the seed.
#include <gtest/gtest.h>

#include "tensor/base/file.h"
#include "tensor/isa.h"
#include "tests/data/image_writer.h"
#include "tests/data/tar_writer.h"
#include "tests/jobs/train_process.h"

namespace elinvar::test {
namespace {

const char* const kConfig = R"([run]
steps = 10
batch_size = 12
virtual_ranks = 3
seed = 5
eval_every = 5

[data]
kind = "webdataset"
path = "PATH"
validation_fraction = 0.2
image_size = 8
random_resized_crop = true
flip = true
brightness = 0.4
contrast = 0.4
saturation = 0.4
hue = 0.1
cutout = 2
mixup = 0.4
cutmix = 1.0
broken = "skip"

[loss]
label_smoothing = 0.1

[optimizer]
lr = 0.05

[[model.layer]]
kind = "conv2d"
out = 6
[[model.layer]]
kind = "batch_norm"
relu = true
[[model.layer]]
kind = "global_avg_pool"
[[model.layer]]
kind = "linear"
)";

// 40 JPEGs of 5 classes and different sizes in three shards; two of them are truncated.
class ImagesJob : public testing::Test, protected TrainRuns {
 protected:
  void SetUp() override {
    for (int s = 0, i = 0; s < 3; ++s) {
      TarWriter tar;
      for (const int end = s == 2 ? 40 : 15 * (s + 1); i < end; ++i) {
        std::string bytes = jpeg(random_image(10 + i % 7, 9 + i % 11, 3, static_cast<uint64_t>(i)));
        if (i == 7 || i == 31) bytes.resize(bytes.size() / 2);
        tar.member(fmt::format("{:03}.jpg", i), bytes).member(fmt::format("{:03}.cls", i), std::to_string(i % 5));
      }
      folder_.write(fmt::format("set/{}.tar", s), tar.finish());
    }
    std::string text = kConfig;
    text.replace(text.find("PATH"), 4, (folder_ / "set").string());
    folder_.write("job.toml", text);
  }
  Ended run(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"run", folder_ / "job.toml", "--run-dir", folder_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return wait(spawn(arguments, name), name);
  }
};

TEST_F(ImagesJob, ThreadsWorkersInstructionSetsAndCachesGiveTheSameLedger) {
  const std::string cache = "data.cache_dir=" + (folder_ / "cache").string();
  const Ended whole = run("whole", {"--workers", "1", "--threads", "1"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(whole.err.find("indexed 3 of 3 shards"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("the next image stands in for it"), std::string::npos) << whole.err;
  ASSERT_EQ(recorded("whole"), 10);
  const std::vector<std::vector<std::string>> others = {
      {"--workers", "3", "--threads", "1", "--isa", "scalar", "--set", "data.threads=0", "--set", "data.cache_mb=0"},
      {"--workers", "2", "--threads", "2", "--set", "data.threads=3", "--set", "data.cache_mb=0", "--set", cache},
      {"--workers", "1", "--threads", "2", "--isa", name_of(available_isas().front()), "--set", cache}};
  for (size_t i = 0; i < others.size(); ++i) {
    const std::string name = std::to_string(i);
    const Ended ended = run(name, others[i]);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), ledger("whole")) << i;
    EXPECT_EQ(ended.err.find("indexed"), std::string::npos) << "they use the index: " << ended.err;
  }
}

TEST_F(ImagesJob, WhatEveryWorkerNoticesIsToldOnce) {
  for (int i = 0; i < 24; ++i)
    folder_.write(fmt::format("pictures/{}/{:02}.png", i % 2 == 0 ? "even" : "odd", i),
                  png(random_image(10, 9, 3, static_cast<uint64_t>(i))));
  folder_.write("pictures/odd/25.webp", "RIFF");
  const Ended ended = run("run", {"--workers", "3", "--threads", "1", "--set", "data.kind=image_folder", "--set",
                                  "data.path=" + (folder_ / "pictures").string()});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const size_t at = ended.err.find("[image_folder] 1 file is skipped");
  ASSERT_NE(at, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("is skipped", ended.err.find("is skipped", at) + 1), std::string::npos) << ended.err;
  EXPECT_EQ(read_file(folder_ / "run/events.jsonl").find("is skipped"), std::string::npos);
}

TEST_F(ImagesJob, ABrokenImageEndsTheRunWithItsName) {
  const Ended ended = run("run", {"--workers", "1", "--set", "data.broken=error"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("damaged or truncated"), std::string::npos) << ended.err;
  EXPECT_TRUE(ended.err.find("0.tar: 007") != std::string::npos || ended.err.find("2.tar: 031") != std::string::npos)
      << ended.err;
}

TEST_F(ImagesJob, ASettingWithoutSenseIsRefusedWithItsPlace) {
  const Ended ended = run("run", {"--set", "data.mixup=9"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("data.mixup must be 0 or from 0.05 to 4, got 9"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace elinvar::test
