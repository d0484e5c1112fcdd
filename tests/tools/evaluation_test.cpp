// The evaluation of a split.
#include <gtest/gtest.h>

#include <algorithm>

#include "tensor/base/activity.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

constexpr const char* kEvaluated = R"([run]
steps = 1
batch_size = 4
[data]
kind = "synthetic"
size = 40
validation_fraction = 0.5
classes = 3
image_size = 4
[model]
kind = "mlp"
)";

struct TimedNames final : ActivityClock {
  void begins(const char* what, Time, ActivityPart part) override {
    timed.push_back(what);
    if (part.of > 0) parts.emplace_back(part.number, part.of);
  }
  void ends(Time) override {}
  std::vector<std::string> timed;
  std::vector<std::pair<int64_t, int64_t>> parts;
};

// A whole split may take longer than a worker is given before it is taken to hang.
TEST(Evaluation, EachBatchIsTimedByItself) {
  const TrainingSetup setup(parse_config(kEvaluated, "evaluated.toml"), Split::validation);
  TimedNames times;
  activity::clock = &times;
  const std::vector<BatchScore> scores = score(setup, setup.data, 0, 1);
  activity::clock = nullptr;
  EXPECT_GT(scores.size(), 1u);
  EXPECT_EQ(std::ranges::count(times.timed, "a batch of an evaluation"), std::ssize(scores));
  ASSERT_EQ(times.parts.size(), scores.size());
  for (int64_t i = 0; i < std::ssize(scores); ++i)
    EXPECT_EQ(times.parts[static_cast<size_t>(i)], (std::pair{i + 1, std::ssize(scores)}));
}

}  // namespace
}  // namespace elinvar
