// Every setting of every table with extreme values: each is refused with file, line and key, or it works.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/build.h"
#include "tensor/base/check.h"
#include "tests/jobs/train_command.h"
#include "tools/config/spec_toml.h"
#include "tools/training/training.h"

namespace elinvar::test {
namespace {

const std::vector<std::string> kExtremes = {"-9223372036854775808",
                                            "-2147483649",
                                            "-1",
                                            "0",
                                            "1",
                                            "2147483648",
                                            "4294967297",
                                            "9223372036854775807",
                                            "-1.0",
                                            "-0.0",
                                            "1e-320",
                                            "1e39",
                                            "-1e308",
                                            "1e308",
                                            "nan",
                                            "inf",
                                            "-inf",
                                            "true",
                                            "false",
                                            "\"\"",
                                            "\"../x\"",
                                            "\"a\\u0000b\"",
                                            "'''" + std::string(5000, 'x') + "'''",
                                            "[]",
                                            "[-1]",
                                            "[5, 3]",
                                            "[9223372036854775807]",
                                            "[1e308, nan, -inf]",
                                            "[\"" + std::string(300, '*') + "x\"]",
                                            "{a = 1}",
                                            "1979-05-27"};

// Uses the configuration in all of one step except the update.
void use(const Config& config) {
  Training training(config, Device{});
  const Cursor at = training.loader.cursor(0);
  (void)training.rank_gradient(training.loader.batch(at, 0), 0, 0);
  for (const int64_t step : {int64_t{0}, training.steps - 1})
    (void)learning_rate(config.schedule, config.optimizer.lr, training.steps, step);
  for (const int64_t every : {config.run.checkpoint_every, config.run.state_digest_every, config.run.audit_every})
    (void)due(training.steps, every);
}

struct Line {
  std::string table, key;
  size_t begin, end, number;
};

std::vector<Line> settings_in(const std::string& text) {
  std::vector<Line> lines;
  std::string table;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin), equals = text.find(" = ", begin);
    if (text[begin] == '[') table = text.substr(begin + 1, end - begin - 2);
    else if (equals < end && table != "model")
      lines.push_back({table, text.substr(begin, equals - begin), begin, end, number});
    begin = end + 1;
  }
  return lines;
}

// Tries all settings, or those of one table.
void expect_refused_or_working(const std::string& base, const std::vector<std::string>& overrides,
                               const std::string& only = "") {
  const std::string text = to_toml(parse_config(base, "extreme.toml", overrides));
  const std::vector<Line> lines = settings_in(text);
  EXPECT_GT(lines.size(), 70u);
  for (const Line& line : lines)
    for (const std::string& value : kExtremes) {
      if (!only.empty() && line.table != only) continue;
      const std::string what = line.table + "." + line.key + " = " + value.substr(0, 40);
      std::string changed = text;
      changed.replace(line.begin, line.end - line.begin, line.key + " = " + value);
      try {
        use(parse_config(changed, "extreme.toml"));
      } catch (const UsageError& error) {
        const std::string said = error.what();
        EXPECT_EQ(said.find("extreme.toml:"), 0u) << what << ": " << said;
        // The error names this line, or one that contradicts it.
        const auto stands_there = [&](const Line& other) {
          return said.find(fmt::format("extreme.toml:{}: ", other.number)) == 0 &&
                 said.find(other.table + "." + other.key) != std::string::npos;
        };
        EXPECT_TRUE(std::ranges::any_of(lines, stands_there)) << what << ": " << said;
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
}

TEST(ExtremeSettings, OfImages) { expect_refused_or_working(kTrainImages, {"data.threads=0"}); }
TEST(ExtremeSettings, OfText) { expect_refused_or_working(kTrainText, {"data.threads=0"}); }
TEST(ExtremeSettings, OfAdaptiveScalingAndOfTheRest) {
  expect_refused_or_working(
      kTrainImages, {"run.scaling=adaptive", "run.batch_max=24", "run.steps=0", "run.epochs=2", "data.threads=0",
                     "data.random_resized_crop=true", "data.crop_padding=0", "optimizer.kind=lamb", "data.mixup=1.0",
                     "schedule.kind=step", "schedule.milestones=[5]", "schedule.warmup_steps=0"});
}

TEST(ExtremeSettings, OfBoxes) {
  const std::string base =
      "[run]\nsteps = 1\nbatch_size = 2\n[model]\nkind = \"yolov3_tiny\"\nchannels = 1\n[task]\nkind = "
      "\"detection\"\nanchors = [4, 4, 8, 4, 4, 8, 16, 16, 24, 12, 12, 24]\n[data]\nkind = "
      "\"synthetic_boxes\"\nsize = 20\nimage_size = 32\nboxes = 4\n";
  expect_refused_or_working(base, {"data.threads=0"}, "task");
}

// Extreme values of settings of networks and layers; their outlines show the effect.
const std::vector<Value> kExtremeValues = {Value{true},
                                           Value{INT64_MIN},
                                           Value{int64_t{-1}},
                                           Value{int64_t{0}},
                                           Value{int64_t{16384}},
                                           Value{int64_t{1} << 24},
                                           Value{INT64_MAX},
                                           Value{-1.0},
                                           Value{std::numeric_limits<double>::quiet_NaN()},
                                           Value{1e308},
                                           Value{std::string()},
                                           Value{std::string(5000, '.')},
                                           Value{std::vector<int64_t>{}},
                                           Value{std::vector<int64_t>{-1, 0}},
                                           Value{std::vector<int64_t>{1 << 24, 1 << 24}},
                                           Value{std::vector<int64_t>{INT64_MAX}},
                                           Value{std::vector<int64_t>(20000, 1)},
                                           Value{std::vector<int64_t>(4, int64_t{1} << 24)}};

const InputInfo kImages{.sample = {64, 64, 3}, .classes = 10};
const InputInfo kTokens{.sample = {16}, .classes = 256, .dtype = DType::i32};
const InputInfo kRows{
    .sample = {4}, .classes = 1, .further = {{.sample = {2}, .dtype = DType::i32, .symbols = {9, 7}}}};
const InputInfo kPairs{.sample = {2}, .classes = 1, .dtype = DType::i32, .symbols = {9, 7}};
const InputInfo kMaskedTokens{
    .sample = {16}, .classes = 256, .dtype = DType::i32, .further = {{.sample = {16}, .dtype = DType::i32}}};
const InputInfo kPairsOfTexts{.sample = {8},
                              .classes = 40,
                              .dtype = DType::i32,
                              .symbols = {40},
                              .further = {{{6}, DType::i32, {40}}, {{1}, DType::i32, {9}}}};

Spec outlined(const Spec& spec, const InputInfo& input) {
  const OutlineScope no_values;
  Spec whole;
  (void)build(spec, input, 0, &whole);
  return whole;
}

// Tries the settings of the spec at `place` within a network.
void try_settings(const Spec& network, const InputInfo& input, const std::function<Spec&(Spec&)>& place) {
  Spec whole = outlined(network, input);
  for (const auto& [key, setting] : place(whole).settings)
    for (const Value& value : kExtremeValues) {
      Spec changed = network;
      place(changed).settings[key] = {value, "extreme.toml:7"};
      try {
        (void)outlined(changed, input);
      } catch (const UsageError& error) {
        const std::string said = error.what();
        EXPECT_EQ(said.find("extreme.toml:"), 0u) << place(whole).kind << "." << key << ": " << said;
      }
    }
}

TEST(ExtremeSettings, OfNetworks) {
  for (const std::string& kind : model_kinds()) {
    if (kind == "layers") continue;
    const bool tokens = kind.starts_with("gpt") || kind.starts_with("bert") || kind == "llama" || kind == "lstm";
    const InputInfo& input = kind == "neumf"                      ? kPairs
                             : kind == "dlrm" || kind == "deepfm" ? kRows
                             : kind.starts_with("t5")             ? kPairsOfTexts
                             : kind.starts_with("electra")        ? kMaskedTokens
                             : tokens                             ? kTokens
                                                                  : kImages;
    try_settings({.kind = kind, .place = "extreme.toml:5"}, input, [](Spec& spec) -> Spec& { return spec; });
  }
  for (const char* kind : {"gpt", "llama"})
    try_settings({.kind = kind, .settings = {{"experts", {int64_t{4}}}}, .place = "extreme.toml:5"}, kTokens,
                 [](Spec& spec) -> Spec& { return spec; });
}

TEST(ExtremeSettings, OfLayers) {
  const auto layer = [](const std::string& text) {
    return read_model_spec(TomlSource("[model]\nlayer = [" + text + "]\n", "extreme.toml"));
  };
  const auto first = [](Spec& spec) -> Spec& { return spec.lists.at("layer").front(); };
  const std::string end = ", {kind = 'flatten'}, {kind = 'linear'}";
  for (const char* kind :
       {"conv2d", "max_pool", "avg_pool", "adaptive_avg_pool", "upsample", "batch_norm", "layer_norm", "rms_norm",
        "group_norm", "linear", "dropout", "relu", "residual", "parallel", "repeat"}) {
    const std::string name = kind;
    const std::string needed = name == "conv2d" || name == "linear" ? ", out = 6"
                               : name == "group_norm"               ? ", groups = 3"
                               : name == "parallel"
                                   ? ", branch = [{layer = [{kind = 'relu'}]}, {layer = [{kind = 'tanh'}]}]"
                               : name == "repeat" ? ", times = 2, layer = [{kind = 'conv2d', out = 3}]"
                                                  : "";
    try_settings(layer("{kind = '" + name + "'" + needed + "}" + end), kImages, first);
  }
  const auto second = [](Spec& spec) -> Spec& { return spec.lists.at("layer")[1]; };
  for (const char* more : {"{kind = 'attention', heads = 2, rotary = true}", "{kind = 'position'}",
                           "{kind = 'experts', experts = 4}", "{kind = 'lstm'}"})
    try_settings(layer(std::string("{kind = 'embedding', channels = 8}, ") + more + ", {kind = 'linear'}"), kTokens,
                 second);
  try_settings(layer("{kind = 'embedding', channels = 8}, {kind = 'linear'}"), kTokens, first);
}

std::string refusal(const std::string& layers) {
  return message_of<UsageError>([&] {
    (void)outlined(read_model_spec(TomlSource("[model]\nlayer = [\n" + layers + "\n]\n", "my.toml")), kImages);
  });
}

TEST(ExtremeSettings, RepeatsAreCountedBeforeTheyAreMade) {
  EXPECT_EQ(refusal("{kind = 'repeat', times = 100000, layer = [\n{kind = 'repeat', times = 100000, layer = [{kind = "
                    "'relu'}]}]}"),
            "my.toml:4: model.layer.times = 100000 of 2 layers are too many: a network has at most 16384");
  std::string nested = "{kind = 'relu'}";
  for (int depth = 0; depth < 20; ++depth) nested = "{kind = 'repeat', times = 10, layer = [" + nested + "]}";
  EXPECT_EQ(refusal(nested).find("my.toml:3: model.layer.times = 10 of"), 0u) << refusal(nested);
  std::string list;
  for (int i = 0; i < 200; ++i) list += "{kind = 'repeat', times = 100, layer = [{kind = 'relu'}]},\n";
  EXPECT_EQ(refusal(list), "my.toml:84: model.layer has more than 16384 layers, repeats counted each time");
}

TEST(ExtremeSettings, ALayersNameIsItsOwn) {
  EXPECT_EQ(refusal("{kind = 'relu', name = 'a'},\n{kind = 'conv2d', out = 3, name = 'a'}"),
            "my.toml:4: model.layer.name = 'a' is what a layer before it is called");
  EXPECT_EQ(refusal("{kind = 'conv2d', out = 3, name = '1'},\n{kind = 'conv2d', out = 3}"),
            "my.toml:4: model.layer.name = '1' is what a layer before it is called");
  // Names that become equal through dots.
  EXPECT_EQ(refusal("{kind = 'residual', name = 'a', layer = [{kind = 'batch_norm'}]},\n{kind = 'batch_norm', name = "
                    "'a.layer.0'}"),
            "my.toml:4: model.layer.kind = 'batch_norm': there is a parameter 'a.layer.0.weight' already");
  EXPECT_EQ(refusal("{kind = 'relu', name = ''}"),
            "my.toml:3: model.layer.name must be a name without control characters, and not empty");
}

TEST(ExtremeSettings, ANetworkThatFitsNoMemoryIsRefusedWithItsLargestTensor) {
  const std::string said = message_of<UsageError>([] {
    (void)build({.kind = "mlp",
                 .settings = {{"hidden", {Value{std::vector<int64_t>{1 << 20, 1 << 20}}, "my.toml:5"}}},
                 .place = "my.toml:4"},
                kImages, 0);
  });
  EXPECT_EQ(said.find("my.toml:4: model.kind = 'mlp' has 1.112e+12 parameters, 4144 GiB, more than the "), 0u) << said;
  EXPECT_NE(said.find("; the largest is 'layers.1.weight' of shape (1048576, 1048576)"), std::string::npos) << said;
  EXPECT_EQ(refusal("{kind = 'conv2d', out = 16777216},\n{kind = 'conv2d', out = 16777216}")
                .find("my.toml:3: model.layer.kind = 'conv2d' gives (64, 64, 16777216) a sample, which is more than"),
            0u)
      << refusal("{kind = 'conv2d', out = 16777216}");
}

}  // namespace
}  // namespace elinvar::test
