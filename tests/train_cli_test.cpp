// The train command as a user meets it: a process, its exit code, what it prints, and what it leaves behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sstream>

#include "comm/job_key.h"
#include "elastic/ledger.h"
#include "tensor/file.h"
#include "tensor/isa.h"
#include "tests/train_process.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;

// Batch norm, a residual branch, dropout, augmentation, three virtual ranks, and at the end of each epoch a batch of
// two samples that leaves one of them without any.
const char* const kImages = R"([run]
steps = 12
batch_size = 12
virtual_ranks = 3
seed = 5
checkpoint_every = 4
keep = 10
eval_every = 6
state_digest_every = 3

[data]
kind = "synthetic"
size = 50
classes = 3
image_size = 8
crop_padding = 1
flip = true

[optimizer]
lr = 0.05
weight_decay = 1e-4
exempt = ["vectors"]
clip_norm = 2.0

[schedule]
kind = "cosine"
warmup_steps = 3

[[model.layer]]
kind = "conv2d"
out = 6
[[model.layer]]
kind = "batch_norm"
relu = true
[[model.layer]]
kind = "residual"
layer = [{kind = "conv2d", out = 6}, {kind = "batch_norm"}]
[[model.layer]]
kind = "dropout"
p = 0.1
[[model.layer]]
kind = "global_avg_pool"
[[model.layer]]
kind = "linear"
)";

const char* const kText = R"([run]
steps = 8
batch_size = 4
virtual_ranks = 2

[data]
kind = "synthetic_text"
size = 300
context = 32

[optimizer]
kind = "adamw"
lr = 0.01

[model]
kind = "gpt"
layers = 1
heads = 2
channels = 16
dropout = 0.1
)";

class TrainCommand : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override {
    folder_.write("images.toml", kImages);
    folder_.write("text.toml", kText);
  }

  // On one thread unless the arguments say otherwise: tests that run side by side would only wait for each other's.
  pid_t start(std::vector<std::string> arguments) const {
    const bool command =
        !arguments.empty() && (arguments[0] == "run" || arguments[0] == "eval" || arguments[0] == "sample");
    if (command && std::find(arguments.begin(), arguments.end(), "--threads") == arguments.end())
      arguments.insert(arguments.end(), {"--threads", "1"});
    return spawn(arguments);
  }
  Ended train(const std::vector<std::string>& arguments) const { return wait(start(arguments)); }
  Ended run(const std::string& config, const std::string& directory, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"run", folder_ / config, "--run-dir", folder_ / directory});
    return train(more);
  }
};

TEST_F(TrainCommand, TheSameBitsForAnyThreadsInstructionSetAndPrefetching) {
  const Ended first = run("images.toml", "first", {"--threads", "1"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.last_line().find("final step=12 loss="), 0u);
  std::vector<std::vector<std::string>> variants = {{"--threads", "2"},
                                                    {"--threads", "3"},
                                                    {"--set", "data.threads=0"},
                                                    {"--set", "data.prefetch=0"},
                                                    {"--set", "data.threads=3", "--set", "data.cache_mb=0"}};
  for (Isa isa : available_isas()) variants.push_back({"--threads", "2", "--isa", name_of(isa)});
  for (size_t i = 0; i < variants.size(); ++i) {
    const Ended other = run("images.toml", std::to_string(i), variants[i]);
    EXPECT_EQ(other.last_line(), first.last_line()) << variants[i][1] << other.err;
    EXPECT_EQ(ledger(std::to_string(i)), ledger("first"));
  }
  EXPECT_NE(run("images.toml", "other", {"--set", "run.seed=6"}).last_line(), first.last_line());
}

TEST_F(TrainCommand, TextTheSameBitsAndResumed) {
  const Ended first = run("text.toml", "first", {"--threads", "1", "--set", "run.checkpoint_every=3"});
  ASSERT_EQ(first.code, 0) << first.err;
  for (Isa isa : available_isas()) {
    const std::string name = name_of(isa);
    EXPECT_EQ(run("text.toml", name, {"--threads", "3", "--isa", name, "--set", "run.checkpoint_every=3"}).last_line(),
              first.last_line());
  }
  fs::remove_all(folder_ / "first" / "checkpoints" / "step-8");
  const std::string before = ledger("first");
  EXPECT_EQ(run("text.toml", "first", {"--resume", "--set", "run.checkpoint_every=3"}).last_line(), first.last_line());
  EXPECT_EQ(ledger("first"), before);
}

TEST_F(TrainCommand, ResumesFromAnyCheckpointAndAnyLedger) {
  const Ended whole = run("images.toml", "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::string lines = ledger("whole");
  for (int from : {4, 8, 12}) {
    const std::string name = "from" + std::to_string(from);
    fs::copy(folder_ / "whole", folder_ / name, fs::copy_options::recursive);
    for (int step : {4, 8, 12})
      if (step > from) fs::remove_all(folder_ / name / "checkpoints" / ("step-" + std::to_string(step)));
    // What a crash may have left: all lines, or those up to the checkpoint and a torn one.
    size_t end = 0;
    for (int line = 0; line <= from; ++line) end = lines.find('\n', end) + 1;
    if (from != 8) fs::resize_file(folder_ / name / "ledger.jsonl", std::min(end + 17, lines.size()));
    const Ended resumed = run("images.toml", name, {"--resume"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("resuming after step " + std::to_string(from)), std::string::npos) << resumed.err;
    EXPECT_EQ(resumed.last_line(), whole.last_line());
    EXPECT_EQ(ledger(name), lines);
  }
}

TEST_F(TrainCommand, KilledAtAnyTimeItResumes) {
  const Ended whole = run("images.toml", "whole", {"--set", "run.steps=150"});
  for (int trial = 0; trial < 4; ++trial) {
    const pid_t child =
        start({"run", folder_ / "images.toml", "--run-dir", folder_ / "killed", "--set", "run.steps=150", "--resume"});
    // Each time some steps further than the time before, wherever that falls within a step.
    reach("killed", 25 * (trial + 1));
    kill(child, SIGKILL);
    EXPECT_EQ(wait(child).code, 128 + SIGKILL);
  }
  const Ended end = run("images.toml", "killed", {"--set", "run.steps=150", "--resume"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("resuming after step"), std::string::npos) << end.err;
  EXPECT_EQ(end.last_line(), whole.last_line());
  EXPECT_EQ(ledger("killed"), ledger("whole"));
}

TEST_F(TrainCommand, AnInterruptionLeavesACheckpoint) {
  const std::vector<std::string> more = {"--set", "run.steps=3000", "--set", "run.checkpoint_every=0"};
  const Ended whole = run("images.toml", "whole", more);
  const pid_t child =
      start({"run", folder_ / "images.toml", "--run-dir", folder_ / "run", more[0], more[1], more[2], more[3]});
  reach("run", 1);
  kill(child, SIGTERM);
  const Ended stopped = wait(child);
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_NE(stopped.err.find("--resume"), std::string::npos) << stopped.err;
  EXPECT_EQ(stopped.out.find("final"), std::string::npos);
  EXPECT_NE(read_file(folder_ / "run" / "result.json").find("\"interrupted\""), std::string::npos);
  EXPECT_FALSE(fs::is_empty(folder_ / "run" / "checkpoints"));

  const Ended resumed = run("images.toml", "run", {more[0], more[1], more[2], more[3], "--resume"});
  EXPECT_EQ(resumed.last_line(), whole.last_line());
  EXPECT_EQ(ledger("run"), ledger("whole"));
}

TEST_F(TrainCommand, ADamagedCheckpointIsPassedOverAndSaidSo) {
  const Ended whole = run("images.toml", "run");
  const std::string before = ledger("run");
  const auto damage = [&](int step) {
    const fs::path part =
        folder_ / "run" / "checkpoints" / ("step-" + std::to_string(step)) / "part-0-of-1.safetensors";
    fs::resize_file(part, fs::file_size(part) / 2);
  };
  damage(12);
  const Ended resumed = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(resumed.code, 0);
  EXPECT_NE(resumed.err.find("step-12 cannot be used"), std::string::npos) << resumed.err;
  EXPECT_NE(resumed.err.find("resuming after step 8"), std::string::npos) << resumed.err;
  EXPECT_EQ(resumed.last_line(), whole.last_line());
  EXPECT_EQ(ledger("run"), before);

  for (int step : {4, 8, 12}) damage(step);
  const Ended none = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("no checkpoint is good"), std::string::npos) << none.err;
  EXPECT_EQ(train({"eval", folder_ / "run"}).code, 3);
}

TEST_F(TrainCommand, ARunThatIsNotReproducibleIsFound) {
  run("images.toml", "run");
  std::string lines = ledger("run");
  const size_t at = lines.find("{\"step\":10,"), end = lines.find('\n', at);
  LedgerLine line = LedgerLine::parse(lines.substr(at, end - at));
  line.loss = std::nextafter(line.loss, 0.0);
  replace_file(folder_ / "run" / "ledger.jsonl", lines.replace(at, end - at, line.text()));
  fs::remove_all(folder_ / "run" / "checkpoints" / "step-12");
  const Ended resumed = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(resumed.code, 3);
  EXPECT_NE(resumed.err.find("step 10 was recorded before with other facts (loss)"), std::string::npos) << resumed.err;
}

TEST_F(TrainCommand, WrongUsageHasExitCode2) {
  const auto expect_usage = [&](const Ended& ended, const std::string& message) {
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find(message), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  };
  expect_usage(train({}), "subcommand is required");
  expect_usage(train({"walk"}), "subcommand is required");
  expect_usage(train({"run"}), "config");
  expect_usage(train({"run", folder_ / "absent.toml"}), "there is no configuration");
  expect_usage(run("images.toml", "run", {"--threads", "0"}), "--threads");
  expect_usage(run("images.toml", "run", {"--isa", "avx3"}), "avx3");
  expect_usage(run("images.toml", "run", {"--set", "run.sed=1"}), "did you mean 'seed'");
  expect_usage(run("images.toml", "run", {"--set", "run.steps=1.5"}), "must be an integer");
  expect_usage(run("images.toml", "run", {"--set", "run.name=../elsewhere"}), "must be the name of a folder");
  expect_usage(run("images.toml", "run", {"--set", "run.virtual_ranks=13"}), "more than the 12 samples");
  expect_usage(run("images.toml", "run", {"--numerics", "exact"}), "--numerics");
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
}

// What only its use shows to be wrong is told with its file and line too.
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
  expect_at_line(kImages, "image_size = 8", "image_size = -8", "data.image_size must be from 0 to 4096, got -8");
  expect_at_line(kImages, "crop_padding = 1", "crop_padding = -1", "data.crop_padding must be from 0 to 16384, got -1");
  expect_at_line(kImages, "flip = true", "mean = [0.5]", "data.mean needs one value for each of 3 channels, got 1");
  expect_at_line(kImages, "flip = true", "validation_fraction = 1",
                 "data.validation_fraction must be in [0, 1), got 1");
  expect_at_line(kImages, "kind = \"synthetic\"", "kind = \"sinthetic\"", "data.kind does not know 'sinthetic'; did");
  expect_at_line(kImages, "warmup_steps = 3", "warmup_steps = 13",
                 "schedule.warmup_steps = 13 are more than the 12 steps of the run");
  expect_at_line(kImages, "exempt = [\"vectors\"]", "exempt = [\"1.gane\"]",
                 "optimizer.exempt names '1.gane', which no parameter is called");
  expect_at_line(kImages, "out = 6\n[[model.layer]]\nkind = \"batch", "out = 0\n[[model.layer]]\nkind = \"batch",
                 "model.layer.out must lie between 1 and 16777216, got 0");
  expect_at_line(kImages, "p = 0.1", "p = 1.1", "model.layer.p must lie between 0 and");
  expect_at_line(kText, "context = 32", "context = 0", "data.context must be from 1 to 2^20 tokens, got 0");
  expect_at_line(kText, "context = 32", "context = 32000", "data.context = 32000 must be less than the ");
  expect_at_line(kText, "heads = 2", "heads = 3", "model.heads = 3 must divide channels = 16");
}

TEST_F(TrainCommand, ARunDirectoryIsNotOverwritten) {
  ASSERT_EQ(run("images.toml", "run").code, 0);
  const std::string before = ledger("run");
  const Ended again = run("images.toml", "run");
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("already holds a run"), std::string::npos);
  const Ended other = run("images.toml", "run", {"--resume", "--set", "optimizer.lr=0.1"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("optimizer.lr: 0.05 became 0.1"), std::string::npos) << other.err;
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

TEST_F(TrainCommand, EvaluatesAndSamples) {
  ASSERT_EQ(run("images.toml", "images").code, 0);
  const std::string said = read_file(folder_ / "train.out");
  const Ended score = train({"eval", folder_ / "images"});
  EXPECT_EQ(score.code, 0) << score.err;
  EXPECT_EQ(score.out.find("validation step=12 loss="), 0u);
  EXPECT_NE(said.find(score.out.substr(0, score.out.find('\n') + 1)), std::string::npos) << score.out;
  EXPECT_NE(score.out.find("\ntop5=1.0000\n"), std::string::npos) << score.out;  // of three classes
  const Ended json = train({"eval", folder_ / "images", "--json", "--confusion", folder_ / "confusion.csv"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto scored = nlohmann::json::parse(json.out);
  EXPECT_EQ(scored["step"], 12);
  std::istringstream table(read_file(folder_ / "confusion.csv"));
  std::string line;
  int64_t counted = 0, right = 0;
  std::getline(table, line);
  EXPECT_EQ(line, "class,pattern0,pattern1,pattern2");
  for (int row = 0; std::getline(table, line); ++row) {
    int name = 0, n[3] = {};
    ASSERT_EQ(std::sscanf(line.c_str(), "pattern%d,%d,%d,%d", &name, &n[0], &n[1], &n[2]), 4) << line;
    EXPECT_EQ(name, row);
    counted += n[0] + n[1] + n[2];
    right += n[row];
  }
  EXPECT_EQ(counted, scored["samples"].get<int64_t>());
  EXPECT_DOUBLE_EQ(static_cast<double>(right) / static_cast<double>(counted), scored["accuracy"].get<double>());
  const Ended mirror = train({"eval", folder_ / "images", "--mirror"});
  EXPECT_EQ(mirror.code, 0) << mirror.err;
  EXPECT_EQ(mirror.out.find("validation step=12 loss="), 0u);
  EXPECT_NE(mirror.out, score.out);
  EXPECT_EQ(train({"sample", folder_ / "images", "--prompt", "x"}).code, 2);
  EXPECT_EQ(train({"eval", folder_ / "images", "--split", "tset"}).code, 2);

  ASSERT_EQ(run("text.toml", "text").code, 0);
  const std::vector<std::string> sample = {"sample", folder_ / "text", "--prompt", "17+25", "--tokens",
                                           "40",     "--seed",         "3"};
  const Ended images = train({"eval", folder_ / "text", "--mirror"});
  EXPECT_EQ(images.code, 2);
  EXPECT_NE(images.err.find("the data of this run are no images"), std::string::npos) << images.err;
  const Ended perplexity = train({"eval", folder_ / "text"});
  EXPECT_NE(perplexity.out.find(" perplexity="), std::string::npos) << perplexity.out;
  EXPECT_EQ(train({"eval", folder_ / "text", "--confusion", folder_ / "text.csv"}).code, 2);
  const Ended text = train(sample);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.find("17+25"), 0u);
  EXPECT_EQ(text.out.size(), 5u + 40u + 1u);
  std::vector<std::string> scalar = sample;
  scalar.insert(scalar.end(), {"--isa", "scalar", "--threads", "3"});
  EXPECT_EQ(train(scalar).out, text.out);
  std::vector<std::string> greedy = sample;
  greedy.insert(greedy.end(), {"--temperature", "0"});
  const Ended likeliest = train(greedy);
  greedy.back() = "1";
  greedy.insert(greedy.end(), {"--top-k", "1"});
  EXPECT_EQ(train(greedy).out, likeliest.out);
}

TEST_F(TrainCommand, MakesTheKeyOfAJobOnce) {
  const Ended made = train({"keygen", folder_ / "keys"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("keys/job.key"), std::string::npos);
  const std::string secret = JobKey::load(folder_ / "keys").secret_key;
  EXPECT_EQ(made.out.find(secret), std::string::npos);
  EXPECT_EQ(train({"keygen", folder_ / "keys"}).code, 3);
  EXPECT_EQ(JobKey::load(folder_ / "keys").secret_key, secret);
  EXPECT_EQ(train({"keygen"}).code, 2);
}

TEST_F(TrainCommand, HelpAndVersion) {
  EXPECT_EQ(train({"--help"}).code, 0);
  EXPECT_EQ(train({"run", "--help"}).code, 0);
  const Ended version = train({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.find("train "), 0u);
}

// A run begins with weights from elsewhere: they are scored, trained with any number of workers, and handed back.
TEST_F(TrainCommand, ImportsAndExportsWeights) {
  ASSERT_EQ(run("images.toml", "first").code, 0);
  const std::string weights = folder_ / "weights.safetensors", again = folder_ / "again.safetensors";
  ASSERT_EQ(train({"export", folder_ / "first", weights}).code, 0);
  EXPECT_EQ(train({"export", folder_ / "first", weights}).code, 3);  // it is there already
  for (const char* name : {"one", "two"})
    ASSERT_EQ(train({"import", weights, folder_ / "images.toml", folder_ / name}).code, 0);
  EXPECT_EQ(train({"import", weights, folder_ / "images.toml", folder_ / "one"}).code, 2);  // holds a run

  ASSERT_EQ(train({"export", folder_ / "one", again}).code, 0);
  EXPECT_EQ(read_file(weights), read_file(again));
  const auto score = [&](const char* name) {
    return nlohmann::json::parse(train({"eval", folder_ / name, "--json"}).out).at("loss").get<double>();
  };
  EXPECT_EQ(score("one"), score("first"));

  ASSERT_EQ(run("images.toml", "one", {"--resume"}).code, 0);
  ASSERT_EQ(run("images.toml", "two", {"--resume", "--workers", "2"}).code, 0);
  EXPECT_EQ(ledger("one"), ledger("two"));
  EXPECT_NE(ledger("one"), ledger("first"));
  // Done again from the same weights, though they are only in the other run's folder.
  const Ended replay = run("images.toml", "three", {"--replay", folder_ / "one"});
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_EQ(ledger("three"), ledger("one"));

  const Ended wrong = train({"import", weights, folder_ / "text.toml", folder_ / "four"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("not of this network"), std::string::npos) << wrong.err;
  EXPECT_FALSE(fs::exists(folder_ / "four"));
}

}  // namespace
}  // namespace elinvar
