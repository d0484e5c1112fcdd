#pragma once
// The train command on two small jobs, images.toml and text.toml, in a temporary folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/jobs/train_process.h"

namespace elinvar::test {

// Batch norm, a residual branch, dropout, augmentation, three virtual ranks, and at the end of each epoch a batch of
// two samples that leaves one rank without samples.
inline const char* const kTrainImages = R"([run]
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

inline const char* const kTrainText = R"([run]
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

class TrainCommand : public testing::Test, protected TrainRuns {
 protected:
  void SetUp() override {
    folder_.write("images.toml", kTrainImages);
    folder_.write("text.toml", kTrainText);
  }

  // Uses one thread unless the arguments say otherwise, because tests run in parallel.
  pid_t start(std::vector<std::string> arguments) const {
    const bool command = !arguments.empty() && (arguments[0] == "run" || arguments[0] == "eval" ||
                                                arguments[0] == "sample" || arguments[0] == "predict");
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

}  // namespace elinvar::test
