// Workers with ZeRO divide the moving average of the weights (optimizer.ema_decay). Ledgers, scores and checkpoints are
// those of one worker.
#include <algorithm>
#include <filesystem>

#include "tensor/safetensors.h"
#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

using test::Division;
using test::Ended;
using Words = std::vector<std::string>;

// A network whose largest tensor is in three slices. Every step is scored with the average.
constexpr const char* kAveraged = R"([run]
steps = 14
batch_size = 6
virtual_ranks = 3
eval_every = 1
checkpoint_every = 5
state_digest_every = 3
keep = 10
[data]
kind = "synthetic"
size = 27
classes = 5
image_size = 6
[optimizer]
kind = "adamw"
lr = 0.001
weight_decay = 0.1
clip_norm = 0.5
ema_decay = 0.9
[model]
[[model.layer]]
kind = "flatten"
[[model.layer]]
kind = "linear"
out = 900
[[model.layer]]
kind = "batch_norm"
relu = true
[[model.layer]]
kind = "linear"
out = 600
[[model.layer]]
kind = "linear"
)";

class AveragedJob : public test::DividedRuns {
 protected:
  void SetUp() override { folder_.write("job.toml", kAveraged); }
  static Words arranged(int zero, int copies, int workers, const Words& more = {}) {
    Words words = {"--arrangement", fmt::format("zero={}", zero), "--copies", std::to_string(copies),
                   "--workers",     std::to_string(workers)};
    if (std::ranges::find(more, "--min-workers") == more.end())
      words.insert(words.end(), {"--min-workers", std::to_string(workers)});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  size_t events(const std::string& name, const std::string& event) const {
    size_t n = 0;
    for (const std::string& line : test::lines_of(read_file(folder_ / name / "events.jsonl")))
      n += nlohmann::json::parse(line).value("event", "") == event;
    return n;
  }
  // Returns the elements of averages of parameters in each part of the newest checkpoint.
  std::vector<int64_t> averages_in_parts(const std::string& name) const {
    std::vector<int64_t> elements;
    for (const auto& part : std::filesystem::directory_iterator(folder_ / name / "checkpoints/step-14")) {
      if (part.path().extension() != ".safetensors") continue;
      int64_t& sum = elements.emplace_back(0);
      for (const auto& [tensor, values] : read_safetensors(part.path().string()).tensors)
        if (tensor.starts_with("average.") && tensor.find("running") == std::string::npos) sum += values.numel();
    }
    return elements;
  }
};

TEST_F(AveragedJob, EachWorkerKeepsAPartOfTheAverage) {
  const std::string alone = trained_result("alone", {});
  const std::vector<int64_t> of_one = averages_in_parts("alone");
  ASSERT_EQ(of_one.size(), 1u);
  for (const int zero : {1, 2, 3})
    for (const int copies : {1, 2}) {
      const std::string name = fmt::format("zero{}-{}", zero, copies);
      EXPECT_EQ(trained_result(name, arranged(zero, copies, 3)), alone) << name;
      const std::vector<int64_t> parts = averages_in_parts(name);
      ASSERT_EQ(parts.size(), 3u) << name;
      EXPECT_EQ(parts[0] + parts[1] + parts[2], of_one[0]) << name;
      for (const int64_t part : parts) EXPECT_LT(part, of_one[0]) << name;
    }
}

// Those who fetch averages for their scores find that their provider is gone, and begin the step's scores again.
TEST_F(AveragedJob, ScoresSurviveTheDeathOfAProvider) {
  const std::string alone = trained_result("alone", {});
  for (const int zero : {1, 2, 3})
    for (const int copies : {1, 2}) {
      const std::string name = fmt::format("zero{}-{}", zero, copies);
      const Words faults = {"--min-workers", "2", "--chaos", "kill:worker=2,step=4,at=fetch;join:step=6"};
      EXPECT_EQ(trained_result(name, arranged(zero, copies, 3, faults)), alone) << name;
      EXPECT_EQ(events(name, "kill"), 1u) << name;
    }
}

TEST_F(AveragedJob, AveragesFollowChangesOfTheArrangement) {
  Words words = {"--set", "run.steps=60", "--set", "run.eval_every=3"};
  const std::string alone = trained_result("alone", words);
  words.insert(words.end(), {"--min-workers", "2", "--chaos",
                             "arrange:step=4,zero=1;arrange:step=12,zero=3;arrange:step=20,zero=2;"
                             "join:step=24;arrange:step=30,zero=3;arrange:step=38,zero=0;"
                             "kill:worker=2,step=42,at=update;arrange:step=46,zero=3"});
  EXPECT_EQ(trained_result("changes", arranged(0, 1, 3, words)), alone);
}

TEST_F(AveragedJob, AnyArrangementGoesOnWithTheCheckpointOfAnyOther) {
  const std::string alone = trained_result("alone", {});
  const std::vector<int> stages = {0, 3, 1, 3, 2, 0};
  for (size_t i = 0; i < stages.size(); ++i) {
    Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / "parts", "--threads", "1"};
    if (i > 0) words.emplace_back("--resume");
    if (i + 1 < stages.size()) words.insert(words.end(), {"--until", std::to_string(2 + 2 * i)});
    for (const std::string& word : arranged(stages[i], 1, stages[i] == 0 ? 1 : 2)) words.push_back(word);
    const Ended ended = train(words);
    ASSERT_EQ(ended.code, 0) << i << ": " << ended.err;
  }
  EXPECT_EQ(result("parts"), alone);
}

TEST_F(AveragedJob, AverageIsTheSameOnAGpu) {
#ifdef ELINVAR_EMULATION
  const std::string alone = trained_result("alone", {});
  for (const int zero : {1, 3})
    EXPECT_EQ(trained_result(fmt::format("emulated{}", zero), arranged(zero, 1, 2, {"--device", "emulated"})), alone);
#else
  GTEST_SKIP() << "the GPU is the emulated one (ELINVAR_EMULATION)";
#endif
}

}  // namespace
}  // namespace elinvar
