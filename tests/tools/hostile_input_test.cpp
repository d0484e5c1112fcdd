// Hostile or damaged input of the train command: it reports at once what is wrong with which file.
#include <cmath>

#include "tensor/base/file.h"
#include "tensor/heap.h"
#include "tests/data/tar_writer.h"
#include "tests/jobs/train_command.h"
#include "tests/support/odd_files.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TrainCommand;

class HostileInput : public TrainCommand {
 protected:
  // Checks that the input is refused within seconds, before there is a run directory.
  void expect_refused(const std::vector<std::string>& settings, int code, const std::string& message,
                      const std::string& config = "images.toml") const {
    std::vector<std::string> arguments;
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const auto began = std::chrono::steady_clock::now();
    const Ended ended = run(config, "run", arguments);
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_NE(ended.err.find(message), std::string::npos) << ended.err;
    EXPECT_FALSE(fs::exists(folder_ / "run"));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  }
};

TEST_F(HostileInput, SettingsThatAskForTooMuch) {
  expect_refused({"run.batch_size=9223372036854775807"}, 2,
                 "--set run.batch_size: run.batch_size must lie between 1 and 2147483648, got 9223372036854775807");
  expect_refused({"data.size=9223372036854775807"}, 2,
                 "--set data.size: data.size must be from 1 to 16777216, got 9223372036854775807");
  expect_refused({"data.classes=100000", "data.image_size=4096"}, 2, "--set data.classes: data.classes = 100000 with");
  folder_.write("repeat.toml", std::string(test::kTrainImages)
                                   .replace(std::string(test::kTrainImages).find("kind = \"dropout\"\np = 0.1"), 24,
                                            "kind = \"repeat\"\ntimes = 100000\nlayer = [{kind = \"repeat\", times = "
                                            "100000, layer = [{kind = \"relu\"}]}]"));
  expect_refused({}, 2, "model.layer.times = 100000 of 2 layers are too many", "repeat.toml");
  folder_.write("mlp.toml",
                "[run]\nsteps = 1\nbatch_size = 1\n[data]\nkind = 'synthetic'\n[model]\nkind = 'mlp'\n"
                "hidden = [16777216, 16777216]\n");
  expect_refused({}, 2, (folder_ / "mlp.toml").string() + ":7: model.kind = 'mlp': 'layers.1.weight' of shape ",
                 "mlp.toml");
}

// The parameters alone would fit into memory.
TEST_F(HostileInput, ANetworkWhoseTrainingStateFitsNoMemory) {
  const double memory = static_cast<double>(machine_memory());
  const auto width = static_cast<int64_t>(std::sqrt(0.7 * memory / sizeof(float)));
  folder_.write(
      "mlp.toml",
      fmt::format("[run]\nsteps = 1\nbatch_size = 1\n[data]\nkind = 'synthetic'\nimage_size = 2\n[model]\nkind "
                  "= 'mlp'\nhidden = [{0}, {0}]\n",
                  width));
  expect_refused({}, 2, (folder_ / "mlp.toml").string() + ":8: model.kind = 'mlp' has parameters of ", "mlp.toml");
}

TEST_F(HostileInput, ABatchThatFitsNoMemory) {
  expect_refused({"run.batch_size=16777216", "data.size=16777216", "data.image_size=1024", "run.virtual_ranks=1"}, 2,
                 "--set run.batch_size: run.batch_size = 16777216 makes 16777216 samples of shape (1024, 1024, 3) a "
                 "virtual rank, 1.966e+05 GiB, more than ");
}

TEST_F(HostileInput, DepthIsNoWayToTheEndOfTheStack) {
  std::string dots = "a";
  for (int i = 0; i < 50000; ++i) dots += ".a";
  folder_.write("dots.toml", "[" + dots + "]\n");
  expect_refused({}, 2, (folder_ / "dots.toml").string() + ":1: a name has more than 32 dots", "dots.toml");
}

TEST_F(HostileInput, DataThatAreNoFile) {
  test::make_pipe(folder_ / "pipe");
  expect_refused({"data.kind=text", "data.path=" + (folder_ / "pipe").string()}, 3,
                 "cannot open " + (folder_ / "pipe").string() + ": it is not a regular file", "text.toml");
  fs::create_directory(folder_ / "texts");
  fs::create_symlink("loop", folder_ / "texts/loop");
  expect_refused({"data.kind=text", "data.path=" + (folder_ / "texts").string()}, 3,
                 "texts/loop' is neither a file nor a folder, but a link that cannot be followed", "text.toml");
  fs::rename(folder_ / "pipe", folder_ / "pipe.toml");
  expect_refused({}, 2, "pipe.toml is no configuration: it is not a regular file", "pipe.toml");
}

// The user sees text that a worker quotes.
TEST_F(HostileInput, ALabelThatIsNoText) {
  test::TarWriter tar;
  folder_.write("a.tar", tar.member("1.png", "").member("1.cls", "\xFF").finish());
  expect_refused({"data.kind=webdataset", "data.path=" + (folder_ / "a.tar").string()}, 3,
                 "a.tar': sample '1' has the label '\xEF\xBF\xBD', expected a whole number from 0 up");
}

TEST_F(HostileInput, ARecordThatIsLostIsNamedAndTheWayOnLeadsOn) {
  ASSERT_EQ(run("images.toml", "run", {"--until", "6"}).code, 0);
  const auto resumed = [&] { return run("images.toml", "run", {"--resume", "--until", "8"}); };
  for (const std::string kind : {"coordinators", "generations"}) {
    const fs::path folder = folder_ / "run" / kind, record = folder / "1.json";
    const std::string whole = read_file(record);
    const auto expect_named = [&](const std::string& what) {
      const Ended ended = resumed();
      EXPECT_EQ(ended.code, 3);
      EXPECT_NE(ended.err.find(record.string() + " " + what), std::string::npos) << ended.err;
      EXPECT_NE(ended.err.find("the folder " + folder.string() + " can be removed, and the run can be resumed"),
                std::string::npos)
          << ended.err;
    };
    for (const auto& [text, what] :
         {std::pair("", "is empty"), {"{", "is damaged: it is no JSON object"}, {"{}", "is damaged: "}}) {
      replace_file(record, text);
      expect_named(what);
    }
    if (kind == "coordinators") {
      fs::remove(record);
      expect_named("is missing");
    }
    replace_file(record, whole);
  }
  for (const char* kind : {"coordinators", "generations"}) fs::remove_all(folder_ / "run" / kind);
  const Ended on = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(on.code, 0) << on.err;
  ASSERT_EQ(run("images.toml", "whole").code, 0);
  EXPECT_EQ(ledger("run"), ledger("whole"));
}

}  // namespace
}  // namespace elinvar
