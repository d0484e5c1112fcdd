// The train command's messages and exit codes for wrong calls and failures, which leave nothing behind.
#include <regex>

#include "comm/job_key.h"
#include "tensor/base/file.h"
#include "tests/jobs/train_command.h"
#include "tests/places.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TrainCommand;

TEST_F(TrainCommand, WrongUsageHasExitCode2) {
  const auto expect_usage = [&](const Ended& ended, const std::string& message) {
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find(message), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  };
  expect_usage(train({}), "subcommand is required");
  expect_usage(train({"walk"}),
               "there is no command 'walk'; valid are run, check, configs, resume, join, ctl, plot, eval, predict, "
               "profile, sample, import, export, devices, keygen. train --help tells what they do");
  expect_usage(train({"rnu"}), "there is no command 'rnu'; did you mean 'run'? train --help tells what they do");
  expect_usage(run("images.toml", "run", {"--stesp=3"}),
               "train: run has no option --stesp; did you mean --steps? train run --help lists them");
  expect_usage(run("images.toml", "run", {"--qwertz"}), "--qwertz");
  expect_usage(train({"run"}), "config");
  expect_usage(train({"run", folder_ / "absent.toml"}), "there is no configuration");
  expect_usage(run("images.toml", "run", {"--threads", "0"}), "--threads");
  for (const char* hold : {"nan", "inf", "-inf", "0", "-3", "1e7", "x"})
    expect_usage(run("images.toml", "run", {"--hold", hold}),
                 fmt::format("expected a number from 1 to 1e+06, got {}", hold));
  for (const char* option : {"--workers", "--min-workers", "--steps", "--until", "--metrics-port"})
    expect_usage(run("images.toml", "run", {option, "-1"}), option);
  for (const char* option : {"--steps", "--until"})
    expect_usage(run("images.toml", "run", {option, "0"}),
                 fmt::format("{}: Value 0 not in range 1 to 2147483648", option));
  for (const char* name : {"", "7", "-7", "two\nlines", "\xC2\x9B"})
    expect_usage(train({"join", "tcp://127.0.0.1:1", "--name", name}), "without control characters");
  expect_usage(run("images.toml", "run", {"--isa", "avx3"}), "avx3");
  expect_usage(run("images.toml", "run", {"--set", "run.sed=1"}), "did you mean 'seed'");
  expect_usage(run("images.toml", "run", {"--set", "run.steps=1.5"}), "must be an integer");
  expect_usage(run("images.toml", "run", {"--set", "run.name=../elsewhere"}), "must be the name of a folder");
  expect_usage(run("images.toml", "run", {"--set", "run.virtual_ranks=13"}), "more than the 12 samples");
  expect_usage(run("images.toml", "run", {"--numerics", "precise"}), "--numerics");
  expect_usage(run("images.toml", "run", {"--device", "gpu"}), "--device");
  expect_usage(run("images.toml", "run", {"--device", "cuda:99"}), "--device cuda:99: ");
  expect_usage(run("images.toml", "run", {"--set", "data.kind=cifar"}),
               "--set data.kind: data.kind does not know 'cifar'");
  expect_usage(run("images.toml", "run", {"--set", "schedule.min_ratio=-1"}),
               "--set schedule.min_ratio: schedule.min_ratio must be in [0, 1], got -1");
  expect_usage(run("text.toml", "run", {"--set", "model.kind=gtp"}),
               "--set model.kind: model.kind does not know 'gtp'; did you mean 'gpt'?");
  expect_usage(run("text.toml", "run", {"--set", "model.layer=2"}),
               "--set model.layer: model.layer is no setting of 'gpt'; did you mean 'layers'?");
  expect_usage(run("text.toml", "run", {"--set", "model.heads=3"}), "--set model.heads: model.heads = 3 must divide");
  expect_usage(run("images.toml", "run", {"--set", "model.layer=[{kind=\"conv2d\"}]"}),
               "--set model.layer: model.layer.out is missing");
  expect_usage(run("text.toml", "run", {"--set", "optimizer.exempt=[\"nothing\"]"}),
               "--set optimizer.exempt: optimizer.exempt names 'nothing'");
  expect_usage(train({"eval", folder_ / "run"}), "no run directory");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"ctl", folder_ / "run", "status"}, std::vector<std::string>{"join", folder_ / "run"}})
    expect_usage(train(command), "there is no run directory " + (folder_ / "run").string() + ", and it is no endpoint");
}

// A value that only its use shows to be wrong is also reported with file and line.
TEST_F(TrainCommand, AWrongValueIsToldWithItsLine) {
  const auto expect_at_line = [&](std::string config, const std::string& from, const std::string& to,
                                  const std::string& message) {
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos);
    const auto line = 1 + std::count(config.begin(), config.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    replace_file(folder_ / "wrong.toml", config.replace(at, from.size(), to));
    const Ended ended = run("wrong.toml", "run");
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_EQ(ended.err.find(fmt::format("train: {}:{}: {}", (folder_ / "wrong.toml").string(), line, message)), 0u)
        << ended.err;
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  };
  expect_at_line(test::kTrainImages, "image_size = 8", "image_size = -8",
                 "data.image_size must be from 0 to 4096, got -8");
  expect_at_line(test::kTrainImages, "crop_padding = 1", "crop_padding = -1",
                 "data.crop_padding must be from 0 to 16384, got -1");
  expect_at_line(test::kTrainImages, "flip = true", "mean = [0.5]",
                 "data.mean needs one value for each of 3 channels, got 1");
  expect_at_line(test::kTrainImages, "flip = true", "validation_fraction = 1",
                 "data.validation_fraction must be in [0, 1), got 1");
  expect_at_line(test::kTrainImages, "kind = \"synthetic\"", "kind = \"sinthetic\"",
                 "data.kind does not know 'sinthetic'; did");
  expect_at_line(test::kTrainImages, "warmup_steps = 3", "warmup_steps = 13",
                 "schedule.warmup_steps = 13 are more than the 12 steps of the run");
  expect_at_line(test::kTrainImages, "exempt = [\"vectors\"]", "exempt = [\"1.gane\"]",
                 "optimizer.exempt names '1.gane', which no parameter is called");
  expect_at_line(test::kTrainImages, "out = 6\n[[model.layer]]\nkind = \"batch",
                 "out = 0\n[[model.layer]]\nkind = \"batch", "model.layer.out must lie between 1 and 16777216, got 0");
  expect_at_line(test::kTrainImages, "p = 0.1", "p = 1.1", "model.layer.p must lie between 0 and");
  expect_at_line(test::kTrainText, "context = 32", "context = 0", "data.context must be from 1 to 2^20 tokens, got 0");
  expect_at_line(test::kTrainText, "context = 32", "context = 32000", "data.context = 32000 must be less than the ");
  expect_at_line(test::kTrainText, "heads = 2", "heads = 3", "model.heads = 3 must divide channels = 16");
}

TEST_F(TrainCommand, ARunDirectoryIsNotOverwritten) {
  ASSERT_EQ(run("images.toml", "run").code, 0);
  const std::string before = ledger("run");
  const Ended again = run("images.toml", "run");
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("already holds a run"), std::string::npos);
  const Ended other = run("images.toml", "run", {"--resume", "--set", "optimizer.lr=0.1"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("optimizer.lr changed from 0.05 to 0.1"), std::string::npos) << other.err;
  EXPECT_EQ(ledger("run"), before);
}

TEST_F(TrainCommand, OtherDataAreNotTakenForTheSame) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i) + "\n";
  File::create(folder_ / "words").write(text);
  const std::vector<std::string> more = {
      "--set", "data.kind=text", "--set", "data.path=" + (folder_ / "words").string(), "--steps", "2"};
  const Ended first = run("text.toml", "run", more);
  ASSERT_EQ(first.code, 0) << first.err;
  std::vector<std::string> resume = more;
  resume.push_back("--resume");
  EXPECT_EQ(run("text.toml", "run", resume).code, 0);
  replace_file(folder_ / "words", "Line" + text.substr(4));
  const Ended changed = run("text.toml", "run", resume);
  EXPECT_EQ(changed.code, 2);
  EXPECT_NE(changed.err.find("the data are not those"), std::string::npos) << changed.err;
}

TEST_F(TrainCommand, ACorruptImageIsNamedAndLeavesNothing) {
  for (const std::string split : {"train", "test"}) {
    for (const std::string category : {"cat", "dog"}) {
      const fs::path directory = folder_ / ("pictures/" + split + "/" + category);
      fs::create_directories(directory);
      File::create(directory / "broken.jpg").write("\xff\xd8\xff\xe0 and no more of a JPEG");
    }
  }
  const Ended ended = run("images.toml", "run",
                          {"--set", "data.kind=image_folder", "--set", "data.path=" + (folder_ / "pictures").string()});
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_NE(ended.err.find("broken.jpg"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(TrainCommand, AValidationSplitThatIsTooShortLeavesNothing) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcdefghi\n";
  File::create(folder_ / "words").write(text);
  const Ended ended = run(
      "text.toml", "run",
      {"--set", "data.kind=text", "--set", "data.path=" + (folder_ / "words").string(), "--set", "data.context=200"});
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(TrainCommand, FailuresHaveExitCode3) {
  const Ended missing = run("images.toml", "run", {"--set", "data.kind=cifar10", "--set", "data.path=/nowhere"});
  EXPECT_EQ(missing.code, 3) << missing.err;
  EXPECT_NE(missing.err.find("/nowhere"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "run"));

  File::create(folder_ / "file").write("not a directory");
  EXPECT_EQ(run("images.toml", "file").code, 3);

  const std::vector<std::string> diverging = {"--set", "optimizer.kind=adam",    "--set", "optimizer.lr=1e30",
                                              "--set", "schedule.warmup_steps=0"};
  const Ended nan = run("images.toml", "run", diverging);
  EXPECT_EQ(nan.code, 3);
  EXPECT_NE(nan.err.find("step 2: the loss is "), std::string::npos) << nan.err;
  EXPECT_NE(read_file(folder_ / "run" / "result.json").find("\"failed\""), std::string::npos);
  std::vector<std::string> scalar = diverging;
  scalar.insert(scalar.end(), {"--isa", "scalar", "--threads", "3"});
  EXPECT_EQ(run("images.toml", "again", scalar).err, nan.err);
}

TEST_F(TrainCommand, MakesTheKeyOfAJobOnce) {
  const Ended made = train({"keygen", folder_ / "keys"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("keys/job.key"), std::string::npos);
  const std::string secret = JobKey::load(folder_ / "keys").secret_key;
  EXPECT_EQ(made.out.find(secret), std::string::npos);
  const Ended again = train({"keygen", folder_ / "keys"});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("job.key exists; choose another folder"), std::string::npos) << again.err;
  EXPECT_EQ(JobKey::load(folder_ / "keys").secret_key, secret);
  EXPECT_EQ(train({"keygen"}).code, 2);
}

TEST_F(TrainCommand, ReadyConfigurationsAreListedAndCopied) {
  const Ended listed = train({"configs"});
  ASSERT_EQ(listed.code, 0) << listed.err;
  EXPECT_TRUE(std::regex_search(listed.out, std::regex("mlp_mnist +A multilayer perceptron on MNIST"))) << listed.out;
  const fs::path copy = folder_ / "own.toml";
  ASSERT_EQ(train({"configs", "mlp_mnist", copy}).code, 0);
  EXPECT_EQ(read_file(copy), read_file(ELINVAR_SOURCE_DIR "/models/configs/mlp_mnist.toml"));
  replace_file(copy, "changed");
  const Ended again = train({"configs", "mlp_mnist", copy});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("own.toml exists; choose another name, or --force"), std::string::npos) << again.err;
  EXPECT_EQ(read_file(copy), "changed");
  ASSERT_EQ(train({"configs", "mlp_mnist.toml", copy, "--force"}).code, 0);
  EXPECT_EQ(read_file(copy), read_file(ELINVAR_SOURCE_DIR "/models/configs/mlp_mnist.toml"));
  const Ended misspelt = train({"configs", "mlp_minst"});
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_NE(misspelt.err.find("did you mean 'mlp_mnist'?"), std::string::npos) << misspelt.err;
  const Ended run_by_name = train({"run", "mlp_mnist"});
  EXPECT_EQ(run_by_name.code, 2);
  EXPECT_NE(run_by_name.err.find("there is no configuration mlp_mnist; train configs mlp_mnist copies the ready one"),
            std::string::npos)
      << run_by_name.err;
}

TEST_F(TrainCommand, HelpAndVersion) {
  EXPECT_EQ(train({"--help"}).code, 0);
  EXPECT_EQ(train({"run", "--help"}).code, 0);
  const Ended version = train({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.find("train "), 0u);
}

}  // namespace
}  // namespace elinvar
