#pragma once
// Jobs whose networks are in virtual shards and in segments, and arrangements that deal these to workers (tensor and
// pipeline parallelism).
#include <fmt/format.h>

#include <string>
#include <vector>

namespace elinvar::test {

// The options of `train run` for `dp` model replicas of `pp` stages of `tp` workers each.
struct Division {
  int dp = 1, tp = 2, pp = 1, zero = 0, copies = 2;

  int workers() const { return dp * tp * pp; }
  std::string text() const { return fmt::format("dp={},tp={},pp={},zero={}", dp, tp, pp, zero); }
  std::string name() const { return fmt::format("dp{}-tp{}-pp{}-zero{}-{}", dp, tp, pp, zero, copies); }
  std::vector<std::string> options(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"--arrangement", text(), "--copies", std::to_string(copies)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // The job begins when all are there, and holds when one is missing.
  std::vector<std::string> complete(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = options(more);
    words.insert(words.end(), {"--min-workers", std::to_string(workers())});
    return words;
  }
};

inline constexpr const char* kDividedRun = R"([run]
steps = 12
batch_size = 6
virtual_ranks = 3
eval_every = 5
checkpoint_every = 6
state_digest_every = 3
keep = 10
)";
// The last batch of an epoch has two samples, for the first of three virtual ranks.
inline constexpr const char* kDividedText = R"([loss]
label_smoothing = 0.1
[data]
kind = "synthetic_text"
size = 38
tokens = "character"
context = 8
)";
// It has three, and the second virtual rank has one of them.
inline constexpr const char* kDividedImages = R"([ledger]
leaves = "all"
[data]
kind = "synthetic"
size = 27
classes = 5
image_size = 6
)";
inline constexpr const char* kDividedAdamW = R"([optimizer]
kind = "adamw"
lr = 0.01
weight_decay = 0.1
exempt = ["vectors"]
clip_norm = 0.5
ema_decay = 0.9
)";
inline constexpr const char* kDividedLamb = R"([optimizer]
kind = "lamb"
lr = 0.01
weight_decay = 0.1
clip_norm = 0.5
ema_decay = 0.9
)";
inline constexpr const char* kDividedLars = R"([optimizer]
kind = "lars"
lr = 0.1
clip_norm = 1.0
)";
inline constexpr const char* kDividedSgd = R"([optimizer]
lr = 0.05
clip_norm = 1.0
)";
inline constexpr const char* kDividedGpt = R"([model]
kind = "gpt"
layers = 2
heads = 4
channels = 16
dropout = 0.1
virtual_shards = 4
)";
inline constexpr const char* kDividedExperts = R"([model]
kind = "gpt"
layers = 2
heads = 4
channels = 16
experts = 5
expert_every = 2
capacity_factor = 1.0
virtual_shards = 4
)";
inline constexpr const char* kDividedLlama = R"([model]
kind = "llama"
layers = 2
heads = 6
kv_heads = 3
channels = 24
hidden = 20
dropout = 0.1
virtual_shards = 3
)";
inline constexpr const char* kDividedSequences = R"([model]
virtual_shards = 4
[[model.layer]]
kind = "embedding"
channels = 16
[[model.layer]]
kind = "position"
[[model.layer]]
kind = "residual"
layer = [{kind = "layer_norm"}, {kind = "attention", heads = 4, rotary = true}, {kind = "dropout", p = 0.1}]
[[model.layer]]
kind = "linear"
out = 10
[[model.layer]]
kind = "batch_norm"
relu = true
[[model.layer]]
kind = "linear"
)";
inline constexpr const char* kDividedFilters = R"([model]
virtual_shards = 4
[[model.layer]]
kind = "conv2d"
out = 4
[[model.layer]]
kind = "batch_norm"
relu = true
[[model.layer]]
kind = "flatten"
[[model.layer]]
kind = "linear"
out = 10
[[model.layer]]
kind = "batch_norm"
relu = true
[[model.layer]]
kind = "dropout"
p = 0.1
[[model.layer]]
kind = "linear"
)";

inline constexpr const char* kDividedResNet = R"([model]
kind = "resnet20"
)";

struct DividedNetwork {
  int number;
  const char* name;
  int shards;  // virtual ones
  int stages;  // at most
  const char *data, *optimizer, *model;

  std::string text() const { return fmt::format("{}{}{}{}", kDividedRun, data, optimizer, model); }
};
inline constexpr DividedNetwork kDividedNetworks[] = {
    {0, "gpt", 4, 3, kDividedText, kDividedAdamW, kDividedGpt},
    {1, "experts_lamb", 4, 3, kDividedText, kDividedLamb, kDividedExperts},
    {2, "llama", 3, 4, kDividedText, kDividedAdamW, kDividedLlama},
    {3, "sequences", 4, 7, kDividedText, kDividedLars, kDividedSequences},
    {4, "filters", 4, 8, kDividedImages, kDividedSgd, kDividedFilters},
    {5, "resnet", 1, 11, kDividedImages, kDividedSgd, kDividedResNet}};

// A network for TinyJob, with four exchanges between the members of a stage for each rank gradient, and one more for
// its digest. It has up to eight stages.
inline constexpr const char* kTinyShards = R"([model]
virtual_shards = 3
[[model.layer]]
kind = "conv2d"
out = 4
[[model.layer]]
kind = "batch_norm"
[[model.layer]]
kind = "dropout"
p = 0.1
[[model.layer]]
kind = "flatten"
[[model.layer]]
kind = "linear"
out = 8
[[model.layer]]
kind = "relu"
[[model.layer]]
kind = "linear"
)";

}  // namespace elinvar::test
