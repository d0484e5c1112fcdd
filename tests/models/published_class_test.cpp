// Weights as the files of a class in other programs have them, of networks whose files differ in more than names.
#include "models/published.h"

#include <gtest/gtest.h>

#include "tensor/base/file.h"
#include "tensor/safetensors.h"
#include "tests/models/published_cases.h"

namespace elinvar::test::exchange {
namespace {

TEST(PublishedClass, ExpertsOfOtherNumbersAndShapesAreNamed) {
  const ConfigCase c = mixtral(), more = mixtral({{"experts", int64_t{5}}});
  const auto network = build(c.model, c.input, 1), other = build(more.model, more.input, 1);
  StateDict weights = published(c.model, network->parameters.state());
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  expect_has(message_of<Failure>([&] { load_published(more.model, *other, weights); }),
             {"'" + experts + "w1.weight' float32 (4, 16, 24) instead of float32 (5, 16, 24)"});
  const auto complaint = [&](const char* name, const Tensor& tensor) {
    StateDict changed = weights;
    if (tensor.defined()) changed[experts + name] = tensor;
    else changed.erase(experts + name);
    return message_of<Failure>([&] { load_published(c.model, *network, changed); });
  };
  expect_has(complaint("1.w1.weight", {}),
             {"of the experts 0 to 3 number 1 is missing before '" + experts + "2.w1.weight'"});
  expect_has(
      complaint("3.w1.weight", {}),
      {"'" + experts + "w1.weight' float32 (3, 16, 24) instead of float32 (4, 16, 24) (the first number is that of"});
  expect_has(complaint("2.w3.weight", Tensor::zeros({20, 16})),
             {"'" + experts + "0.w3.weight' is float32 (24, 16), and '" + experts + "2.w3.weight' float32 (20, 16)"});
  // Which of two forms counts would be a guess.
  expect_has(complaint("w1.weight", Tensor::zeros({4, 16, 24})), {"not of this network: '" + experts + "0.w1.weight'"});
}

TEST(PublishedClass, OfBothNetworksOfAnElectra) {
  const ConfigCase c = electra();
  Spec model;
  const auto network = build(c.model, c.input, 1, &model);
  const StateDict state = network->parameters.state();
  expect_entries(Json::parse(published_config(model, state, {})), {{"model_type", "electra"},
                                                                   {"architectures", {"ElectraForPreTraining"}},
                                                                   {"vocab_size", 40},
                                                                   {"embedding_size", 12},
                                                                   {"hidden_size", 16},
                                                                   {"intermediate_size", 64},
                                                                   {"num_hidden_layers", 2}});
  expect_entries(Json::parse(published_config(model, state, {}, "generator")),
                 {{"architectures", {"ElectraForMaskedLM"}},
                  {"embedding_size", 12},
                  {"hidden_size", 8},
                  {"intermediate_size", 32},
                  {"num_attention_heads", 1},
                  {"num_hidden_layers", 1}});
  const StateDict generator = published_for_class(model, state, "generator");
  const Tensor& words = state.at("discriminator.electra.embeddings.word_embeddings.weight");
  for (const char* name : {"electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"})
    EXPECT_EQ(digest(generator.at(name)), digest(words)) << name;
  EXPECT_FALSE(published_for_class(model, state).contains("generator_lm_head.weight"));

  const TemporaryFolder folder;
  fs::create_directories(folder / "generator");
  folder.write("config.json", R"({"model_type": "electra", "hidden_size": 16, "embedding_size": 12})");
  folder.write("generator/config.json", R"({"model_type": "electra", "hidden_size": 4, "num_hidden_layers": 12})");
  expect_has(message_of<UsageError>([&] { check_published_settings(model, state, folder.path()); }),
             {"generator/config.json is of a network with model.generator_channels = 4 instead of 8, "
              "model.generator_layers = 12 instead of 1"});
  folder.write("generator/config.json", R"({"model_type": "electra", "embedding_size": 8})");
  expect_has(
      message_of<Failure>([&] { check_published_settings(model, state, folder.path()); }),
      {"config.json has \"embedding_size\": 12, and ", "generator/config.json has 8; both networks have the same"});
  // A discriminator alone is enough where the generator may stay new; a generator has no embeddings of its own.
  write_safetensors(folder / "model.safetensors", published_for_class(model, state));
  fs::remove_all(folder / "generator");
  const auto again = build(c.model, c.input, 2);
  expect_has(
      message_of<Failure>([&] { load_published(model, *again, read_published(model, folder.path())); }),
      {"missing: 'generator.", "no folder generator with an ElectraForMaskedLM; --except 'generator.*' leaves that"});
  const std::vector<std::string> except = {"generator.*"};
  load_published(model, *again, read_published(model, folder.path()), except);
  EXPECT_EQ(digest(again->parameters.state().at("discriminator.electra.embeddings.word_embeddings.weight")),
            digest(words));
  StateDict other = generator;
  other["electra.embeddings.word_embeddings.weight"] = Tensor::zeros(words.shape());
  fs::create_directories(folder / "generator");
  write_safetensors(folder / "generator/model.safetensors", other);
  expect_has(
      message_of<Failure>([&] { load_published(model, *again, read_published(model, folder.path())); }),
      {"not of this network: 'generator.electra.embeddings.word_embeddings.weight' (differs from 'discriminator.elec"});
  expect_has(message_of<Failure>([&] { load_published(model, *again, read_published(folder / "generator")); }),
             {"expected the folder of an ElectraForPreTraining, with that of an ElectraForMaskedLM in it"});
  // A folder with what `train export RUN FILE` writes.
  fs::create_directories(folder / "own");
  write_safetensors(folder / "own/model.safetensors", published(model, state));
  load_published(model, *again, read_published(model, folder / "own"));
  EXPECT_EQ(digest(again->parameters.state()), digest(state));
}

TEST(PublishedClass, FurtherHeadsOfABertAreIgnored) {
  const ConfigCase c = bert("tokens");
  const auto network = build(c.model, c.input, 1), again = build(c.model, c.input, 2);
  StateDict weights;
  for (const auto& [name, tensor] : published_for_class(c.model, network->parameters.state())) {
    std::string old = name;
    for (const auto& [now, before] :
         {std::pair("LayerNorm.weight", "LayerNorm.gamma"), {"LayerNorm.bias", "LayerNorm.beta"}})
      if (const size_t at = old.find(now); at != std::string::npos) old.replace(at, std::string(now).size(), before);
    weights.emplace(old, tensor);
  }
  weights.emplace("bert.pooler.dense.weight", Tensor::zeros({16, 16}));
  weights.emplace("cls.seq_relationship.weight", Tensor::zeros({2, 16}));
  weights.emplace("bert.embeddings.position_ids", Tensor::zeros({1, 12}, DType::i64));
  load_published(c.model, *again, weights);
  EXPECT_EQ(digest(again->parameters.state()), digest(network->parameters.state()));
  weights.emplace("bert.other.weight", Tensor::zeros({2}));
  expect_has(message_of<Failure>([&] { load_published(c.model, *again, weights); }),
             {"not of this network: 'bert.other.weight'"});
}

TEST(PublishedClass, WhatWasExportedFitsTheNetworkAgain) {
  for (const ConfigCase& c :
       {gpt(), gpt({{"tied_head", false}, {"bias", false}}), llama(), llama31(),
        llama({{"qkv_bias", true}, {"tied_head", true}}), mixtral(), bert("tokens"), bert("pooled"), electra(),
        electra({{"embedding", int64_t{16}}, {"generator_channels", int64_t{16}}}), t5(),
        t5({{"gated", true}, {"tied_head", false}}), resnet(false), resnet(true),
        of_images("shufflenet_v2_x0_5", {})}) {
    Spec model;
    const auto network = build(c.model, c.input, 1, &model), again = build(c.model, c.input, 2);
    const StateDict state = network->parameters.state();
    const TemporaryFolder folder;
    for (const std::string& part : published_folders(model)) {
      const fs::path place = folder / part;
      fs::create_directories(place);
      replace_file(place / "config.json", published_config(model, state, {.context = 12}, part));
      write_safetensors(place / "model.safetensors", published_for_class(model, state, part));
    }
    check_published_settings(model, again->parameters.state(), folder.path());
    load_published(model, *again, read_published(model, folder.path()));
    EXPECT_EQ(digest(again->parameters.state()), digest(state)) << c.model.kind;
  }
}

}  // namespace
}  // namespace elinvar::test::exchange
