// Every configuration in the project can be read without a complaint, and its network can be built.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "models/build.h"
#include "nn/schedule.h"
#include "tests/places.h"
#include "tools/config/config.h"

namespace elinvar {
namespace {

// Returns the description of its data without the data.
InputInfo stand_in(const DataConfig& data) {
  if (data.targets_as_input)
    return {.sample = {data.context},
            .classes = 257,
            .dtype = DType::i32,
            .further = {{.sample = {data.context}, .dtype = DType::i32}}};
  if (data.kind == "text") return {.sample = {data.context}, .classes = 256, .dtype = DType::i32};
  if (data.kind == "labelled_text")
    return {.sample = {data.context},
            .classes = 2,
            .dtype = DType::i32,
            .symbols = {257},
            .further = {{{1}, DType::i32, {data.context + 1}}}};
  if (data.kind == "synthetic_table" && data.features == 0)
    return {.sample = {static_cast<int64_t>(data.symbols.size())},
            .classes = 1,
            .dtype = DType::i32,
            .symbols = data.symbols};
  if (data.kind == "synthetic_table")
    return {.sample = {data.features},
            .classes = 1,
            .further = {{.sample = {std::accumulate(data.most_ids.begin(), data.most_ids.end(),
                                                    int64_t{data.most_ids.empty() ? 4 : 0})},
                         .dtype = DType::i32,
                         .symbols = data.symbols,
                         .most_ids = data.most_ids}}};
  if (data.kind == "synthetic_pairs") {
    const std::vector<int64_t> symbols = {data.classes + 2};
    return {.sample = {data.context},
            .classes = symbols[0],
            .dtype = DType::i32,
            .symbols = symbols,
            .further = {{{data.context}, DType::i32, symbols}, {{1}, DType::i32, {data.context + 1}}}};
  }
  if (data.kind == "ratings")
    return {.sample = {1 + data.negatives, 2}, .classes = 1, .dtype = DType::i32, .symbols = {943, 1682}};
  if (data.kind == "mnist") return {.sample = {28, 28, 1}, .classes = 10};
  if (data.kind == "cifar10") return {.sample = {32, 32, 3}, .classes = 10};
  if (data.kind == "synthetic_boxes")
    return {.sample = {data.image_size, data.image_size, 3}, .classes = 5 + data.classes};
  return {.sample = {data.image_size, data.image_size, 3}, .classes = data.kind == "coco" ? 5 + 80 : 1000};
}

TEST(ModelConfigs, ReadAndBuild) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ELINVAR_SOURCE_DIR "/models/configs")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    Config config = read_config(entry.path());
    if (config.model.kind.starts_with("gpt2")) config.model.settings["layers"] = {int64_t{1}};  // for speed,
    const OutlineScope no_values;                                                               // as this is
    const auto network = build(config.model, stand_in(config.data), config.run.seed);
    EXPECT_NO_THROW(exempt_from_decay(network->parameters, config.optimizer.exempt));
    EXPECT_NO_THROW(make_optimizer(config.optimizer, network->parameters));
    EXPECT_NO_THROW(check_schedule(config.schedule, 10000));
    ++count;
  }
  EXPECT_GT(count, 20);
}

// A resolved model written as TOML is the same model.
TEST(ModelConfigs, ResolvedModelReadsBack) {
  for (const char* name : {"layers_cifar10", "layers_text", "resnet18_cifar10", "llama_shakespeare",
                           "gpt_moe_shakespeare", "llama_moe_shakespeare"}) {
    SCOPED_TRACE(name);
    Config config = read_config(std::string(ELINVAR_SOURCE_DIR "/models/configs/") + name + ".toml");
    const InputInfo input = stand_in(config.data);
    const auto network = build(config.model, input, 1, &config.model);
    const Config again = parse_config(to_toml(config), "again.toml");
    const auto twin = build(again.model, input, 1);
    EXPECT_EQ(digest(network->parameters.state()), digest(twin->parameters.state()));
    EXPECT_TRUE(differences(config, again).empty());
  }
}

}  // namespace
}  // namespace elinvar
