#pragma once
// Runs of a small job, and calls of `repro` on them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"

namespace elinvar::test {

class ReproRuns : public testing::Test, protected TrainRuns {
 protected:
  static constexpr int64_t kSteps = 24, kCheckpoint = 8;

  void SetUp() override {
    folder_.write("job.toml", text_of({.steps = kSteps,
                                       .batch_size = 24,
                                       .virtual_ranks = 3,
                                       .checkpoint_every = kCheckpoint,
                                       .state_digest_every = 5,
                                       .samples = 100,
                                       .image_size = 6,
                                       .channels = 4,
                                       .run = "keep = 10\n",
                                       .data = "threads = 0\n"}));
  }

  std::string path(const std::string& name) const { return folder_ / name; }

  // Runs `train run` in the folder NAME to its end. `build` is "" or "faulty/".
  void train(const std::string& name, const std::vector<std::string>& more = {}, const std::string& build = "") const {
    std::vector<std::string> arguments = {"run", path("job.toml"), "--run-dir", path(name), "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = wait(spawn_program(build + "train", arguments, "train"), "train");
    ASSERT_EQ(ended.code, 0) << ended.err;
  }

  // Runs `repro` with these arguments. Returns its output, parsed if it is JSON.
  nlohmann::json repro(const std::vector<std::string>& arguments, int code, const std::string& build = "") const {
    const Ended ended = wait(spawn_program(build + "repro", arguments, "repro"), "repro");
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    return nlohmann::json::parse(ended.out, nullptr, /*allow_exceptions=*/false);
  }
};

}  // namespace elinvar::test
