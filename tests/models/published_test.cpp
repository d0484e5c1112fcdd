// Weights in the format of torchvision and Hugging Face; tests/golden/make_published.py wrote the files with PyTorch.
#include "models/published.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/build.h"
#include "tensor/base/check.h"
#include "tensor/safetensors.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* file;
  Spec model;
  InputInfo input;
};

InputInfo images(int64_t side, int64_t classes) { return {.sample = {side, side, 3}, .classes = classes}; }
InputInfo tokens(int64_t context, int64_t vocabulary) {
  return {.sample = {context}, .classes = vocabulary, .dtype = DType::i32};
}

Case small_resnet() {
  return {"published_resnet",
          {.kind = "resnet",
           .settings = {{"blocks", {std::vector<int64_t>{1, 1}}},
                        {"widths", {std::vector<int64_t>{4, 8}}},
                        {"bottleneck", {true}}}},
          images(64, 10)};
}
Case small_gpt() {
  return {"published_gpt",
          {.kind = "gpt", .settings = {{"layers", {int64_t{1}}}, {"heads", {int64_t{2}}}, {"channels", {int64_t{16}}}}},
          tokens(12, 40)};
}

Case small_llama() {
  return {"published_llama",
          {.kind = "llama",
           .settings = {{"layers", {int64_t{2}}},
                        {"heads", {int64_t{4}}},
                        {"kv_heads", {int64_t{2}}},
                        {"channels", {int64_t{16}}},
                        {"hidden", {int64_t{24}}},
                        {"rope_base", {500.0}},
                        {"norm_eps", {1e-3}}}},
          tokens(12, 40)};
}

Case small_llama31() {
  return {"published_llama31",
          {.kind = "llama",
           .settings = {{"layers", {int64_t{1}}},
                        {"heads", {int64_t{2}}},
                        {"kv_heads", {int64_t{1}}},
                        {"channels", {int64_t{32}}},
                        {"hidden", {int64_t{24}}},
                        {"rope_base", {500.0}},
                        {"rope_factor", {8.0}},
                        {"rope_original_context", {int64_t{64}}},
                        {"norm_eps", {1e-6}}}},
          tokens(200, 40)};
}

struct File {
  StateDict weights;
  Tensor input, logits;
};

File open(const fs::path& path) {
  File file{.weights = read_published(path), .input = {}, .logits = {}};
  const auto take = [&](const char* name) { return file.weights.extract(name).mapped(); };
  file.input = take("expected.input");
  file.logits = take("expected.logits");
  return file;
}

File golden(const Case& c) {
  return open(fs::path(ELINVAR_SOURCE_DIR) / "tests/golden" / (std::string(c.file) + ".safetensors"));
}

bool equal_bits(const Tensor& a, const Tensor& b) { return a.shape() == b.shape() && digest(a) == digest(b); }

void expect_logits(const Case& c, const File& file) {
  const auto network = build(c.model, c.input, 1);
  load_published(c.model, *network, file.weights);
  const NoGrad constant;
  Context context;
  const Tensor got = network->forward(file.input, context).value();
  ASSERT_EQ(got.shape(), file.logits.shape());
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double a = got.data<float>()[i], b = file.logits.data<float>()[i];
    worst = std::isnan(a) ? INFINITY : std::max(worst, std::abs(a - b));
    largest = std::max(largest, std::abs(b));
  }
  EXPECT_LE(worst, 1e-4 * largest) << c.file;
  // Writing returns what was read.
  for (const auto& [name, tensor] : published(c.model, network->parameters.state()))
    EXPECT_TRUE(equal_bits(tensor, file.weights.at(name))) << name;
}

TEST(Published, WeightsOfPyTorchGiveItsLogits) {
  for (const Case& c : {small_resnet(), small_gpt(), small_llama(), small_llama31()}) expect_logits(c, golden(c));
}

// ELINVAR_PUBLISHED names a folder filled by `make_published.py --large`.
TEST(Published, WeightsOfWholeNetworksOfPyTorchGiveItsLogits) {
  const char* folder = std::getenv("ELINVAR_PUBLISHED");
  if (folder == nullptr) GTEST_SKIP() << "ELINVAR_PUBLISHED names no folder of make_published.py --large";
  for (const Case& c : {Case{"resnet50", {.kind = "resnet50"}, images(224, 1000)},
                        Case{"vgg11", {.kind = "vgg11", .settings = {{"conv_bias", {true}}}}, images(224, 1000)},
                        Case{"gpt2", {.kind = "gpt2"}, tokens(1024, 50257)}})
    expect_logits(c, open(fs::path(folder) / (std::string(c.file) + ".safetensors")));
}

TEST(Published, VggReadsImagesChannelByChannel) {
  const Spec model{.kind = "vgg11"};
  const auto network = build(model, images(64, 3), 1);  // 7 x 7 pixels of 512 channels before the classifier
  const StateDict theirs = published(model, network->parameters.state());
  const Tensor own = network->parameters.state().at("classifier.0.weight");
  const Tensor& other = theirs.at("classifier.0.weight");
  for (const auto& [channel, pixel] : {std::pair(0, 1), std::pair(3, 0), std::pair(511, 48)})
    EXPECT_EQ(own.data<float>()[pixel * 512 + channel], other.data<float>()[channel * 49 + pixel]);
  const auto again = build(model, images(64, 3), 2);
  load_published(model, *again, theirs);
  EXPECT_EQ(digest(again->parameters.state()), digest(network->parameters.state()));
}

TEST(Published, FilesMayBeSeveralAndOfNarrowTypes) {
  const TemporaryFolder folder;
  const Case c = small_gpt();
  const File file = golden(c);
  StateDict first, second;
  for (const auto& [name, tensor] : file.weights)
    (name < "h.0.ln" ? first : second).emplace("transformer." + name, tensor.to(DType::bf16));
  write_safetensors(folder / "a.safetensors", first);
  write_safetensors(folder / "b.safetensors", second);
  std::string map;
  for (const auto& [part, of] : {std::pair("a", &first), std::pair("b", &second)})
    for (const auto& [name, tensor] : *of)
      map += fmt::format("{}\"{}\": \"{}.safetensors\"", map.empty() ? "" : ", ", name, part);
  folder.write("model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  const auto network = build(c.model, c.input, 1);
  load_published(c.model, *network, read_published(folder.path()));
  const Tensor expected = file.weights.at("wte.weight").to(DType::bf16).to(DType::f32);
  EXPECT_TRUE(equal_bits(network->parameters.state().at("wte.weight"), expected));

  folder.write("model.safetensors.index.json", "{\"weight_map\": {\"x\": \"../a.safetensors\"}}");
  EXPECT_NE(message_of<Failure>([&] { read_published(folder.path()); }).find("is no file beside it"),
            std::string::npos);
  folder.write("model.safetensors.index.json", "{\"weight_map\": {\"x\": \"a.safetensors\"}}");
  EXPECT_NE(message_of<Failure>([&] { read_published(folder.path()); }).find("'x' is not in a.safetensors"),
            std::string::npos);
}

TEST(Published, WhatDoesNotFitIsNamed) {
  const Case c = small_resnet();
  StateDict weights = golden(c).weights;
  weights["bn1.weight"] = Tensor::zeros({5});
  weights["other.weight"] = weights.extract("layer1.0.conv1.weight").mapped();
  const auto network = build(c.model, c.input, 1);
  const Digest before = digest(network->parameters.state());
  const std::string message = message_of<Failure>([&] { load_published(c.model, *network, weights); });
  for (const char* part : {"missing: 'layer1.0.conv1.weight' (4, 4, 1, 1)", "'bn1.weight' float32 (5,) instead of",
                           "not of this network: 'other.weight'"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(digest(network->parameters.state()), before);
}

TEST(Published, SomeMayKeepTheirInitialValues) {
  Case c = small_resnet();
  const File file = golden(c);
  c.input.classes = 3;
  const auto network = build(c.model, c.input, 1);
  const Tensor head = network->parameters.state().at("fc.weight").clone();
  EXPECT_NE(message_of<Failure>([&] { load_published(c.model, *network, file.weights); }).find("'fc.weight'"),
            std::string::npos);
  const std::vector<std::string> except = {"fc.*"};
  load_published(c.model, *network, file.weights, except);
  EXPECT_TRUE(equal_bits(network->parameters.state().at("fc.weight"), head));
  EXPECT_TRUE(equal_bits(network->parameters.state().at("bn1.weight"), file.weights.at("bn1.weight")));
  const std::vector<std::string> nothing = {"head.*"};
  EXPECT_NE(message_of<UsageError>([&] { load_published(c.model, *network, file.weights, nothing); }).find("'head.*'"),
            std::string::npos);
  const std::vector<std::string> misspelt = {"fc.wieght"};
  EXPECT_NE(message_of<UsageError>([&] {
              load_published(c.model, *network, file.weights, misspelt);
            }).find("did you mean 'fc.weight'?"),
            std::string::npos);
}

// The config.json next to weights of Hugging Face.
TEST(Published, SettingsAreComparedWithThoseOfTheWeights) {
  const TemporaryFolder folder;
  const auto complaint = [&](const Case& c, const std::string& json) -> std::string {
    folder.write("config.json", json);
    Spec resolved;
    build(c.model, c.input, 1, &resolved);
    for (const fs::path& weights : {fs::path(folder.path()), folder / "model.safetensors"}) {
      try {
        check_published_settings(resolved, weights);
      } catch (const UsageError& error) {
        return error.what();
      } catch (const Failure& error) {
        return std::string("failure: ") + error.what();
      }
    }
    return "";
  };
  const std::string scaling =
      R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3",
          "original_max_position_embeddings": 64})";
  const std::string heads = R"("num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-06)",
                    old_form = "{" + heads + R"(, "rope_theta": 500, "rope_scaling": )" + scaling + "}",
                    new_form = "{" + heads + R"(, "rope_parameters": )" + scaling.substr(0, scaling.size() - 1) +
                               R"(, "rope_theta": 500.0}})";
  EXPECT_EQ(complaint(small_llama31(), old_form), "");
  EXPECT_EQ(complaint(small_llama31(), new_form), "");
  Case plain = small_llama31();
  for (const char* setting : {"rope_factor", "rope_original_context"}) plain.model.settings.erase(setting);
  plain.model.settings["heads"] = {int64_t{4}};
  for (const std::string& form : {old_form, new_form}) {
    const std::string message = complaint(plain, form);
    for (const char* part :
         {"config.json is of a network with model.heads = 2 instead of 4", "model.rope_factor = 8 instead of none",
          "model.rope_original_context = 64 instead of none"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_NE(complaint(small_llama31(), R"({"rope_scaling": null})").find("model.rope_factor = 1 instead of 8"),
            std::string::npos);
  EXPECT_NE(complaint(small_llama(), R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})")
                .find("failure: " + (folder / "config.json").string() +
                      ": rotary positions of type \"yarn\" are not in this engine"),
            std::string::npos);
  for (const char* form : {"[]", "{", R"({"rope_scaling": 8})", R"({"rms_norm_eps": "small"})"})
    EXPECT_TRUE(complaint(small_llama(), form).starts_with("failure: ")) << form;
  EXPECT_EQ(complaint(small_gpt(), R"({"n_head": 2, "rope_theta": 1})"), "");
  EXPECT_NE(complaint(small_gpt(), R"({"n_head": 4})").find("model.heads = 4 instead of 2"), std::string::npos);
  EXPECT_EQ(complaint(small_resnet(), "no JSON"), "");
}

TEST(Published, AHeadOfItsOwnIsNotPassedOver) {
  Case c = small_gpt();
  StateDict weights = golden(c).weights;
  const auto message = [&] {
    const auto network = build(c.model, c.input, 1);
    return message_of<Failure>([&] { load_published(c.model, *network, weights); });
  };
  weights["lm_head.weight"] = weights.at("wte.weight").clone();
  EXPECT_EQ(message(), "");
  weights["lm_head.weight"].data<float>()[5] += 1;
  EXPECT_NE(message().find("not of this network: 'lm_head.weight' (model.tied_head = false has a place for it)"),
            std::string::npos);
  c.model.settings["tied_head"] = {false};
  EXPECT_EQ(message(), "");
  weights.erase("lm_head.weight");
  EXPECT_NE(message().find("(model.tied_head = true needs none)"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
