// Uses of trained networks: train eval, sample, export, and import of weights from elsewhere.
#include <cstdio>
#include <set>
#include <sstream>

#include "tensor/base/file.h"
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TrainCommand;

TEST_F(TrainCommand, EvaluatesAndSamples) {
  ASSERT_EQ(run("images.toml", "images").code, 0);
  const std::string said = read_file(folder_ / "train.out");
  const Ended score = train({"eval", folder_ / "images"});
  EXPECT_EQ(score.code, 0) << score.err;
  EXPECT_EQ(score.out.find("validation step=12 loss="), 0u);
  EXPECT_NE(said.find(score.out.substr(0, score.out.find('\n') + 1)), std::string::npos) << score.out;
  EXPECT_EQ(score.out.find("top5"), std::string::npos) << score.out;  // three classes
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
  ASSERT_NE(perplexity.out.find(" perplexity="), std::string::npos) << perplexity.out;
  EXPECT_NE(perplexity.out.find("\ntop5=0."), std::string::npos) << perplexity.out;
  // The loss is that of the targets themselves, with and without smoothing.
  const std::string settings = folder_ / "text/config.toml", plain = read_file(settings);
  const size_t smoothing = plain.find("label_smoothing = 0");
  ASSERT_NE(smoothing, std::string::npos);
  replace_file(settings, std::string(plain).replace(smoothing, 19, "label_smoothing = 0.5 # "));
  const Ended smoothed = train({"eval", folder_ / "text"});
  const auto last_word = [](const std::string& out) { return out.substr(out.rfind(" perplexity=")); };
  EXPECT_EQ(last_word(smoothed.out), last_word(perplexity.out));
  EXPECT_NE(smoothed.out, perplexity.out);
  replace_file(settings, plain);
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

// Training does not depend on the validation loss, which is reported as it is.
TEST_F(TrainCommand, AValidationLossThatIsNoNumberEndsNoRun) {
  const Ended far = run("images.toml", "far",
                        {"--set", "run.steps=1", "--set", "schedule.warmup_steps=0", "--set", "optimizer.lr=1e30"});
  EXPECT_EQ(far.code, 0) << far.err;
  const std::string metrics = read_file(folder_ / "far" / "metrics.jsonl");
  EXPECT_NE(metrics.find("\"validation_loss\":null"), std::string::npos) << metrics;
}

// The average is evaluated, and continues after a stop.
TEST_F(TrainCommand, AnAverageOfTheWeightsIsKeptAndUsed) {
  const std::vector<std::string> average = {"--set", "optimizer.ema_decay=0.9"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), average.begin(), average.end());
    return more;
  };
  ASSERT_EQ(run("images.toml", "plain").code, 0);
  const std::string plain = train({"eval", folder_ / "plain"}).out;
  ASSERT_EQ(run("images.toml", "average", average).code, 0);
  const std::string said = read_file(folder_ / "train.out"), score = train({"eval", folder_ / "average"}).out;
  EXPECT_NE(score, plain);
  EXPECT_NE(said.find(score.substr(0, score.find('\n') + 1)), std::string::npos) << said << score;
  const Ended part = run("images.toml", "parts", with({"--until", "7"}));
  ASSERT_EQ(part.code, 0) << part.err;
  ASSERT_EQ(run("images.toml", "parts", with({"--resume"})).code, 0);
  EXPECT_EQ(read_file(folder_ / "parts/ledger.jsonl"), read_file(folder_ / "average/ledger.jsonl"));
  EXPECT_EQ(train({"eval", folder_ / "parts"}).out, score);
  const Ended wrong = run("images.toml", "wrong", {"--set", "optimizer.ema_decay=1"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("optimizer.ema_decay must be in [0, 1), got 1"), std::string::npos) << wrong.err;
}

TEST_F(TrainCommand, SamplesWithAndWithoutACacheTheSameTexts) {
  ASSERT_EQ(run("text.toml", "text").code, 0);
  const auto sampled = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sample", folder_ / "text", "--seed", "4"});
    return train(more);
  };
  // More tokens than the context of 32.
  const Ended text = sampled({"--prompt", "17+25", "--tokens", "60", "--top-p", "0.9", "--top-k", "50"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.size(), 5u + 60u + 1u);
  EXPECT_NE(text.err.find("60 tokens in "), std::string::npos) << text.err;
  EXPECT_EQ(sampled({"--prompt", "17+25", "--tokens", "60", "--top-p", "0.9", "--top-k", "50", "--no-cache"}).out,
            text.out);

  const Ended json = sampled({"--prompt", "17+25", "--tokens", "9", "--count", "3", "--json"});
  EXPECT_EQ(json.code, 0) << json.err;
  std::istringstream lines(json.out);
  std::set<std::vector<int>> different;
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object["sample"], count);
    EXPECT_EQ(object["prompt"], "17+25");
    EXPECT_EQ(object["end"], "length");
    different.insert(object["tokens"].get<std::vector<int>>());
    EXPECT_EQ(object["tokens"].size(), 9u);
  }
  EXPECT_EQ(count, 3);
  EXPECT_GT(different.size(), 1u);
  const Ended three = sampled({"--prompt", "17+25", "--tokens", "9", "--count", "3"});
  EXPECT_EQ(three.out.find("17+25"), 0u);
  EXPECT_NE(three.out.find("\n---\n17+25"), std::string::npos) << three.out;

  EXPECT_EQ(sampled({"--prompt", ""}).code, 2);
  EXPECT_EQ(sampled({"--prompt", "1", "--top-p", "1.5"}).code, 2);
  EXPECT_EQ(sampled({"--prompt", "1", "--count", "0"}).code, 2);
}

// A run begins with weights from elsewhere: they are scored, trained with any number of workers, and exported again.
TEST_F(TrainCommand, ImportsAndExportsWeights) {
  ASSERT_EQ(run("images.toml", "first").code, 0);
  const std::string weights = folder_ / "weights.safetensors", again = folder_ / "again.safetensors";
  ASSERT_EQ(train({"export", folder_ / "first", weights}).code, 0);
  const Ended twice = train({"export", folder_ / "first", weights});
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.err.find(weights + " exists; choose another name, or --force"), std::string::npos) << twice.err;
  EXPECT_EQ(train({"export", folder_ / "first", weights, "--force"}).code, 0);
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
  // Repeated from the same weights, which are only in the other run's folder.
  const Ended replay = run("images.toml", "three", {"--replay", folder_ / "one"});
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_EQ(ledger("three"), ledger("one"));

  const Ended wrong = train({"import", weights, folder_ / "text.toml", folder_ / "four"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("not of this network"), std::string::npos) << wrong.err;
  EXPECT_FALSE(fs::exists(folder_ / "four"));
}

// A language model that was imported has the scores, samples and losses of its origin. The config.json next to the
// weights may describe another one.
TEST_F(TrainCommand, ImportedTextModelsAreScoredAndSampled) {
  ASSERT_EQ(run("text.toml", "first").code, 0);
  const std::string weights = folder_ / "published/model.safetensors";
  fs::create_directories(folder_ / "published");
  ASSERT_EQ(train({"export", folder_ / "first", weights}).code, 0);
  const auto imported = [&] {
    return train({"import", folder_ / "published", folder_ / "text.toml", folder_ / "tuned"});
  };
  folder_.write("published/config.json", R"({"n_head": 3})");
  const Ended wrong = imported();
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("model.heads = 3 instead of"), std::string::npos) << wrong.err;
  fs::remove(folder_ / "published/config.json");
  ASSERT_EQ(imported().code, 0);

  const auto after_step = [](const std::string& out) { return out.substr(out.find("loss=")); };
  const Ended score = train({"eval", folder_ / "tuned"});
  EXPECT_EQ(score.code, 0) << score.err;
  EXPECT_EQ(score.out.find("validation step=0 loss="), 0u) << score.out;
  EXPECT_EQ(after_step(score.out), after_step(train({"eval", folder_ / "first"}).out));
  const auto said = [&](const char* name) {
    return train({"sample", folder_ / name, "--prompt", "17+25", "--tokens", "40", "--seed", "3", "--top-k", "5"});
  };
  const Ended text = said("tuned");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.find("17+25"), 0u);
  EXPECT_EQ(text.out, said("first").out);

  ASSERT_EQ(run("text.toml", "tuned", {"--resume"}).code, 0);
  const Ended later = said("tuned");
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_EQ(later.out.find("17+25"), 0u);
}

// Scores are computed as the run computes, samples portably. Weights do not depend on the numerics of later runs.
TEST_F(TrainCommand, RunsWithExactNumericsAreScoredSampledAndImported) {
  ASSERT_EQ(run("images.toml", "images", {"--numerics", "exact", "--workers", "2"}).code, 0);
  const std::string said = read_file(folder_ / "train.out");
  const auto scored = [&](const char* name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"eval", folder_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = train(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out.substr(0, ended.out.find('\n') + 1);
  };
  const std::string score = scored("images");
  EXPECT_NE(said.find(score), std::string::npos) << score;
  EXPECT_EQ(scored("images", {"--isa", "scalar", "--threads", "3"}), score);
  const Ended verified = wait(spawn_program("repro", {"verify", folder_ / "images"}, "repro"), "repro");
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;

  const std::string weights = folder_ / "weights.safetensors";
  ASSERT_EQ(train({"export", folder_ / "images", weights}).code, 0);
  for (const std::string numerics : {"exact", "portable"}) {
    ASSERT_EQ(
        train({"import", weights, folder_ / "images.toml", folder_ / numerics, "--set", "run.numerics=" + numerics})
            .code,
        0);
    ASSERT_EQ(train({"resume", folder_ / numerics}).code, 0);
    EXPECT_NE(ledger(numerics).find("\"numerics\":\"" + numerics + "\""), std::string::npos);
  }
  EXPECT_NE(ledger("exact"), ledger("portable"));

  ASSERT_EQ(run("text.toml", "text", {"--numerics", "exact"}).code, 0);
  const auto sampled = [&](const std::string& isa) {
    return train({"sample", folder_ / "text", "--prompt", "17+25", "--tokens", "40", "--seed", "3", "--isa", isa});
  };
  const Ended text = sampled("auto");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.find("17+25"), 0u);
  EXPECT_EQ(sampled("scalar").out, text.out);
  EXPECT_NE(scored("text").find("loss="), std::string::npos);
}

TEST_F(TrainCommand, ChecksAConfigurationWithoutARun) {
  const Ended three = train({"check", folder_ / "images.toml", "--workers", "4"});
  EXPECT_EQ(three.code, 0) << three.err;
  for (const char* line :
       {"50 training samples of shape (8, 8, 3), 3 classes\n", "steps        12 of 12 samples, 5 an epoch",
        "worker 1     virtual rank 0 of 3, 4 samples a step\n",
        "worker 4     nothing: set run.virtual_ranks to at least 4", "\nloss         "})
    EXPECT_NE(three.out.find(line), std::string::npos) << line << " is not in\n" << three.out;
  EXPECT_FALSE(fs::exists("runs"));
  const Ended wrong = train({"check", folder_ / "images.toml", "--set", "data.mixup=-1"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("data.mixup"), std::string::npos) << wrong.err;
}

// A forecast has the data set, a byte for each number of an image.
TEST_F(TrainCommand, CheckCountsTheMemoryOfTheData) {
  const auto mebibytes = [&](const std::string& samples) {
    const Ended ended = train({"check", folder_ / "images.toml", "--threads", "1", "--set", "data.size=" + samples,
                               "--set", "data.image_size=32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    const size_t at = ended.out.find("\nmemory       ");
    EXPECT_NE(at, std::string::npos) << ended.out;
    return std::stod(ended.out.substr(at + 14));
  };
  const double of_samples = 20000.0 * 32 * 32 * 3 / (1 << 20);
  // The memory that libraries and the heap keep differs between two processes by some MiB, of 59.
  EXPECT_NEAR(mebibytes("20500") - mebibytes("500"), of_samples, 0.3 * of_samples);
}

// The path of the data is relative to the folder in which the run began.
TEST_F(TrainCommand, ARunIsUsedFromAnotherFolder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i) + "\n";
  folder_.write("here/words/a.txt", text);
  folder_.write("there/unrelated.txt", "");
  const auto in_folder = [&](const char* name, std::vector<std::string> arguments) {
    return wait(spawn(std::move(arguments), name,
                      {"sh", "-c", fmt::format("cd {} && exec \"$@\"", (folder_ / name).string()), "sh"}),
                name);
  };
  const Ended made = in_folder("here", {"run", folder_ / "text.toml", "--run-dir", folder_ / "run", "--set",
                                        "data.kind=text", "--set", "data.path=words", "--until", "4"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Ended scored = in_folder("there", {"eval", folder_ / "run"});
  EXPECT_EQ(scored.code, 0) << scored.err;
  const Ended sampled = in_folder("there", {"sample", folder_ / "run", "--prompt", "line", "--tokens", "4"});
  EXPECT_EQ(sampled.code, 0) << sampled.err;
  const Ended resumed = in_folder("there", {"resume", folder_ / "run"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("final step=8"), std::string::npos) << resumed.out;
}

}  // namespace
}  // namespace elinvar
