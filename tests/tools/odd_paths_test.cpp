// Paths that name something other than a file or a folder: each reader reports it at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "comm/zmq_transport.h"
#include "data/bpe.h"
#include "data/dataset.h"
#include "elastic/checkpoint/checkpoint.h"
#include "elastic/run/run_record.h"
#include "models/published.h"
#include "tensor/base/check.h"
#include "tensor/safetensors.h"
#include "tests/support/odd_files.h"
#include "tests/support/temporary_folder.h"
#include "tools/config/config.h"
#include "tools/tokenize/documents.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

// Returns the error of either type; a reader that waits ends the process.
std::string refusal(const std::function<void()>& read) {
  ::alarm(60);
  std::string said = "nothing";
  try {
    read();
  } catch (const UsageError& error) {
    said = error.what();
  } catch (const Failure& error) {
    said = error.what();
  }
  ::alarm(0);
  return said;
}

class OddPaths : public testing::Test {
 protected:
  OddPaths() {
    make_pipe(folder_ / "pipe");
    make_socket(folder_ / "socket");
    fs::create_symlink("loop", folder_ / "loop");
    paths_ = {folder_ / "pipe", folder_ / "socket", folder_ / "loop", "/dev/zero", folder_ / std::string(5000, 'x')};
  }
  // Checks that `read` throws an error that names the path, for each of the paths.
  void expect_refused(const std::string& what, const std::function<void(const std::string& path)>& read) const {
    for (const std::string& path : paths_) {
      const std::string said = refusal([&] { read(path); });
      EXPECT_NE(said.find(path), std::string::npos) << what << " of " << path.substr(0, 100) << ": " << said;
    }
  }

  TemporaryFolder folder_;
  std::vector<std::string> paths_;
};

TEST_F(OddPaths, OfData) {
  for (const char* kind : {"cifar10", "image_folder", "mnist", "text", "tokens", "webdataset"})
    expect_refused(kind, [&](const std::string& path) { open_dataset({.kind = kind, .path = path}, Split::train); });
  expect_refused("a tokenizer", [](const std::string& path) { Bpe::load(path); });
  expect_refused("documents",
                 [](const std::string& path) { for_each_document({.inputs = {path}}, [](const std::string&) {}); });
}

// Under the names that the readers look for.
TEST_F(OddPaths, InFolders) {
  const std::vector<std::pair<const char*, const char*>> files = {{"cifar10", "data_batch_1.bin"},
                                                                  {"image_folder", "cat/1.png"},
                                                                  {"mnist", "train-images-idx3-ubyte"},
                                                                  {"text", "a.txt"},
                                                                  {"tokens", "a.bin"},
                                                                  {"webdataset", "a.tar"}};
  for (const auto& [kind, file] : files) {
    const std::string path = folder_ / (std::string(kind) + "/" + file);
    fs::create_directories(fs::path(path).parent_path());
    make_pipe(path);
    const std::string folder = folder_ / kind;
    const std::string said = refusal([&] { open_dataset({.kind = kind, .path = folder}, Split::train); });
    EXPECT_NE(said.find(path), std::string::npos) << kind << ": " << said;
  }
}

TEST_F(OddPaths, PatternsThatStandForTooMuch) {
  const auto refused = [](const std::string& path) {
    return refusal([&] { open_dataset({.kind = "webdataset", .path = path}, Split::train); });
  };
  EXPECT_EQ(refused(std::string(100000, '{') + std::string(100000, '}')),
            "data.path has 200000 bytes, the most is 16384");
  EXPECT_NE(refused(std::string(8000, '{') + std::string(8000, '}')), "nothing");
  std::string pattern(10000, 'x');
  for (int i = 0; i < 20; ++i) pattern += "{a,b}";
  EXPECT_EQ(refused(pattern), "data.path = '" + pattern + "' stands for names of more than 2^28 bytes");
}

TEST_F(OddPaths, OfWeightsKeysAndConfigurations) {
  expect_refused("tensors", [](const std::string& path) { read_safetensors(path); });
  expect_refused("weights", [](const std::string& path) { read_published(path); });
  expect_refused("a configuration", [](const std::string& path) { read_config(path); });
  expect_refused("a key", [](const std::string& path) { JobKey::load(path); });
}

TEST_F(OddPaths, InARunDirectory) {
  folder_.write("run/ledger.jsonl", "");
  for (const char* file : {"digests.jsonl", "events.jsonl", "environment.json"}) {
    make_pipe(folder_ / (std::string("run/") + file));
    const std::string said = refusal([&] { (void)RunRecord(folder_ / "run"); });
    EXPECT_NE(said.find(file), std::string::npos) << said;
    fs::remove(folder_ / (std::string("run/") + file));
  }
  fs::create_directories(folder_ / "run/checkpoints/step-1");
  make_pipe(folder_ / "run/checkpoints/step-1/manifest.json");
  EXPECT_NE(refusal([&] { (void)CheckpointStore(folder_ / "run/checkpoints").read(1); }).find("step-1"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
