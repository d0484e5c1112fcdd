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

struct PublishedCase {
  const char* file;
  Spec model;
  InputInfo input;
};

InputInfo images(int64_t side, int64_t classes) { return {.sample = {side, side, 3}, .classes = classes}; }
InputInfo tokens(int64_t context, int64_t vocabulary) {
  return {.sample = {context}, .classes = vocabulary, .dtype = DType::i32};
}

PublishedCase small_resnet() {
  return {"published_resnet",
          {.kind = "resnet",
           .settings = {{"blocks", {std::vector<int64_t>{1, 1}}},
                        {"widths", {std::vector<int64_t>{4, 8}}},
                        {"bottleneck", {true}}}},
          images(64, 10)};
}
PublishedCase small_gpt() {
  return {"published_gpt",
          {.kind = "gpt", .settings = {{"layers", {int64_t{1}}}, {"heads", {int64_t{2}}}, {"channels", {int64_t{16}}}}},
          tokens(12, 40)};
}

PublishedCase small_llama() {
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

PublishedCase small_llama31() {
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

PublishedCase small_mixtral() {
  PublishedCase c = small_llama();
  c.file = "published_mixtral";
  c.model.settings["experts"] = {int64_t{4}};
  c.model.settings["rope_base"] = {1e6};
  c.model.settings["norm_eps"] = {1e-5};
  return c;
}

PublishedCase small_bert() {
  return {"published_bert",
          {.kind = "bert",
           .settings = {{"layers", {int64_t{2}}},
                        {"heads", {int64_t{3}}},
                        {"channels", {int64_t{24}}},
                        {"hidden", {int64_t{32}}}}},
          tokens(12, 40)};
}

PublishedCase small_electra() {
  PublishedCase c = small_bert();  // the discriminator's sizes
  c.file = "published_electra";
  c.model.kind = "electra";
  c.model.settings["embedding"] = {int64_t{12}};
  c.model.settings["generator_heads"] = {int64_t{2}};
  c.model.settings["generator_channels"] = {int64_t{8}};
  c.model.settings["generator_hidden"] = {int64_t{16}};
  c.input.further = {{{12}, DType::i32, {40}}};
  return c;
}

PublishedCase small_t5() {
  return {"published_t5",
          {.kind = "t5",
           .settings = {{"layers", {int64_t{1}}},
                        {"decoder_layers", {int64_t{2}}},
                        {"heads", {int64_t{3}}},
                        {"channels", {int64_t{24}}},
                        {"head_channels", {int64_t{10}}},
                        {"hidden", {int64_t{32}}},
                        {"buckets", {int64_t{8}}},
                        {"max_distance", {int64_t{20}}},
                        {"gated", {true}}}},
          {.sample = {8},
           .classes = 40,
           .dtype = DType::i32,
           .symbols = {40},
           .further = {{{6}, DType::i32, {40}}, {{1}, DType::i32, {9}}}}};
}

struct File {
  StateDict weights;
  Tensor input, logits;
  std::vector<Tensor> further = {};  // inputs
};

File open(const fs::path& path) {
  File file{.weights = read_published(path), .input = {}, .logits = {}};
  const auto take = [&](const char* name) { return file.weights.extract(name).mapped(); };
  file.input = take("expected.input");
  file.logits = take("expected.logits");
  for (const char* name : {"expected.targets", "expected.lengths"})
    if (file.weights.contains(name)) file.further.push_back(take(name).to(DType::i32));
  return file;
}

File golden(const PublishedCase& c) {
  return open(fs::path(ELINVAR_SOURCE_DIR) / "tests/golden" / (std::string(c.file) + ".safetensors"));
}

bool equal_bits(const Tensor& a, const Tensor& b) { return a.shape() == b.shape() && digest(a) == digest(b); }

void expect_logits(const PublishedCase& c, const File& file) {
  const auto network = build(c.model, c.input, 1);
  load_published(c.model, *network, file.weights);
  const NoGrad constant;
  Context context{.inputs = file.further};
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
  for (const auto& [name, tensor] : published(c.model, network->parameters.whole_state()))
    EXPECT_TRUE(equal_bits(tensor, file.weights.at(name))) << name;
}

TEST(Published, WeightsOfPyTorchGiveItsLogits) {
  for (const PublishedCase& c : {small_resnet(), small_gpt(), small_llama(), small_llama31(), small_mixtral(),
                                 small_bert(), small_electra(), small_t5()})
    expect_logits(c, golden(c));
}

// ELINVAR_PUBLISHED names a folder filled by `make_published.py --large`.
TEST(Published, WeightsOfWholeNetworksOfPyTorchGiveItsLogits) {
  const char* folder = std::getenv("ELINVAR_PUBLISHED");
  if (folder == nullptr) GTEST_SKIP() << "ELINVAR_PUBLISHED names no folder of make_published.py --large";
  for (const PublishedCase& c :
       {PublishedCase{"resnet50", {.kind = "resnet50"}, images(224, 1000)},
        PublishedCase{"vgg11", {.kind = "vgg11", .settings = {{"conv_bias", {true}}}}, images(224, 1000)},
        PublishedCase{"gpt2", {.kind = "gpt2"}, tokens(1024, 50257)}})
    expect_logits(c, open(fs::path(folder) / (std::string(c.file) + ".safetensors")));
}

// Weights are cut when they are read and joined when they are written, so files do not tell the number of shards.
TEST(Published, NetworksInVirtualShardsHaveTheSameFiles) {
  for (PublishedCase c : {small_gpt(), small_llama(), small_mixtral()}) {
    const File file = golden(c);
    const auto whole = build(c.model, c.input, 1);
    load_published(c.model, *whole, file.weights);
    c.model.settings["virtual_shards"] = {int64_t{2}};
    expect_logits(c, file);
    const auto cut = build(c.model, c.input, 1);
    load_published(c.model, *cut, file.weights);
    EXPECT_EQ(digest(published_for_class(c.model, cut->parameters.whole_state())),
              digest(published_for_class(c.model, whole->parameters.state())));
    const std::vector<std::string> except = {"*.weight"};
    const auto initial = build(c.model, c.input, 1), some = build(c.model, c.input, 1);
    load_published(c.model, *some, file.weights, except);
    const StateDict before = initial->parameters.whole_state(), loaded = whole->parameters.state();
    for (const auto& [name, tensor] : some->parameters.whole_state())
      EXPECT_TRUE(equal_bits(tensor, (name.ends_with(".weight") ? before : loaded).at(name))) << name;
  }
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
  const PublishedCase c = small_gpt();
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
  const PublishedCase c = small_resnet();
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
  PublishedCase c = small_resnet();
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

TEST(Published, AHeadOfItsOwnIsNotPassedOver) {
  PublishedCase c = small_gpt();
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

// torchvision's VGG has biases that batch norm makes useless, and so does Hugging Face's GPT-2 where a network has
// none.
TEST(Published, BiasesOfZerosAreNoBiases) {
  const Spec vgg{.kind = "vgg11"};
  const auto network = build(vgg, images(32, 3), 1);
  StateDict weights = published(vgg, network->parameters.state());
  ASSERT_TRUE(weights.contains("features.0.bias"));
  EXPECT_EQ(weights.at("features.0.bias").shape(), Shape({64}));
  EXPECT_EQ(weights.size(), network->parameters.state().size() + 8);
  const auto again = build(vgg, images(32, 3), 2);
  load_published(vgg, *again, weights);
  EXPECT_EQ(digest(again->parameters.state()), digest(network->parameters.state()));
  weights.at("features.0.bias").data<float>()[3] = 1;
  EXPECT_NE(
      message_of<Failure>([&] { load_published(vgg, *again, weights); }).find("not of this network: 'features.0.bias'"),
      std::string::npos);
  weights.at("features.0.bias").data<float>()[3] = 0;
  weights["other.bias"] = Tensor::zeros({4});
  EXPECT_NE(message_of<Failure>([&] { load_published(vgg, *again, weights); }).find("'other.bias'"), std::string::npos);

  PublishedCase gpt = small_gpt();
  gpt.model.settings["bias"] = {false};
  const auto plain = build(gpt.model, gpt.input, 1), other = build(gpt.model, gpt.input, 2);
  const StateDict of_class = published_for_class(gpt.model, plain->parameters.state());
  EXPECT_EQ(of_class.at("transformer.h.0.attn.c_attn.bias").shape(), Shape({48}));
  EXPECT_EQ(of_class.at("transformer.ln_f.bias").shape(), Shape({16}));
  load_published(gpt.model, *other, of_class);
  EXPECT_EQ(digest(other->parameters.state()), digest(plain->parameters.state()));
}

TEST(Published, WithoutBatchNormVggIsTorchvisionsWithoutBn) {
  const Spec model{.kind = "vgg16", .settings = {{"batch_norm", {false}}}};
  Spec resolved;
  const auto network = build(model, images(32, 3), 1, &resolved);
  EXPECT_TRUE(std::get<bool>(resolved.settings.at("conv_bias").value));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : published(model, network->parameters.state()))
    if (name.starts_with("features.") && name.ends_with(".bias")) names.push_back(name.substr(9, name.size() - 14));
  std::ranges::sort(names, {}, [](const std::string& name) { return std::stoi(name); });
  // torchvision.models.vgg16().features: convolutions and ReLUs, a pooling after each stage.
  EXPECT_EQ(fmt::format("{}", fmt::join(names, " ")), "0 2 5 7 10 12 14 17 19 21 24 26 28");
  EXPECT_EQ(network->parameters.buffers.size(), 0u);
  const NoGrad constant;
  Context context;
  EXPECT_EQ(network->forward(Tensor::full({2, 32, 32, 3}, 0.5), context).shape(), Shape({2, 3}));
}

TEST(Published, ClassesOfHuggingFaceHaveTheirNames) {
  const PublishedCase resnet = small_resnet(), gpt = small_gpt();
  const auto images = build(resnet.model, resnet.input, 1), text = build(gpt.model, gpt.input, 1);
  const StateDict own = images->parameters.state(), theirs = published_for_class(resnet.model, own);
  const auto expect_same = [&](const char* name, const char* their_name) {
    ASSERT_TRUE(theirs.contains(their_name)) << their_name;
    EXPECT_EQ(digest(theirs.at(their_name)), digest(published(resnet.model, own).at(name))) << name;
  };
  expect_same("conv1.weight", "resnet.embedder.embedder.convolution.weight");
  expect_same("bn1.running_mean", "resnet.embedder.embedder.normalization.running_mean");
  expect_same("layer1.0.conv2.weight", "resnet.encoder.stages.0.layers.0.layer.1.convolution.weight");
  expect_same("layer2.0.bn3.bias", "resnet.encoder.stages.1.layers.0.layer.2.normalization.bias");
  expect_same("layer2.0.downsample.0.weight", "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight");
  expect_same("layer2.0.downsample.1.running_var",
              "resnet.encoder.stages.1.layers.0.shortcut.normalization.running_var");
  expect_same("fc.bias", "classifier.1.bias");
  EXPECT_EQ(theirs.at("resnet.embedder.embedder.normalization.num_batches_tracked").item(), 0);

  const StateDict of_gpt = published_for_class(gpt.model, text->parameters.state());
  for (const auto& [name, tensor] : of_gpt) EXPECT_TRUE(name.starts_with("transformer.") || name == "lm_head.weight");
  EXPECT_TRUE(equal_bits(of_gpt.at("lm_head.weight"), text->parameters.state().at("wte.weight")));

  for (const auto& [c, network] : {std::pair(&resnet, images.get()), std::pair(&gpt, text.get())}) {
    const auto again = build(c->model, c->input, 2);
    load_published(c->model, *again, published_for_class(c->model, network->parameters.state()));
    EXPECT_EQ(digest(again->parameters.state()), digest(network->parameters.state())) << c->file;
  }
}

TEST(Published, FilesOfTorchSaveAreToldFromSafetensors) {
  const TemporaryFolder folder;
  folder.write("pytorch_model.bin", "PK");
  const std::string message = message_of<Failure>([&] { read_published(folder.path()); });
  for (const char* part :
       {"has weights of torch.save (pytorch_model.bin)", "convert them in Python", "save_pretrained("})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace
}  // namespace elinvar::test
