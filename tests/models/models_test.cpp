// Every kind of network can be built and has the expected parameters, and its rank gradient is a pure function.
#include <gtest/gtest.h>

#include "models/build.h"
#include "nn/micro_batch.h"
#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

const InputInfo kImage{.sample = {224, 224, 3}, .classes = 1000};
const InputInfo kCifar{.sample = {32, 32, 3}, .classes = 10};
const InputInfo kFewTokens{.sample = {16}, .classes = 50, .dtype = DType::i32};

Spec spec(const std::string& kind, std::map<std::string, Setting> settings = {},
          std::map<std::string, std::vector<Spec>> lists = {}) {
  return {kind, std::move(settings), std::move(lists), "m.toml:1"};
}
Setting at(int line, Value value) { return {std::move(value), "m.toml:" + std::to_string(line)}; }
Setting list(std::vector<int64_t> v) { return {std::move(v)}; }
Setting integer(int64_t v) { return {v}; }

int64_t parameter_count(const Spec& s, const InputInfo& input) {
  const OutlineScope no_values;
  return build(s, input, 1)->parameters.count();
}

std::string error_of(const Spec& s, const InputInfo& input) {
  try {
    build(s, input, 1);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

// Counts as published, or as in torchvision and Hugging Face.
TEST(Models, HaveTheKnownNumbersOfParameters) {
  EXPECT_EQ(parameter_count(spec("resnet18"), kImage), 11689512);
  EXPECT_EQ(parameter_count(spec("resnet50"), kImage), 25557032);
  EXPECT_EQ(parameter_count(spec("resnet18"), kCifar), 11173962);
  EXPECT_EQ(parameter_count(spec("resnet20", {{"shortcut", at(0, std::string("pad"))}}), kCifar), 269722);
  EXPECT_EQ(parameter_count(spec("resnet20"), kCifar), 272474);
  EXPECT_EQ(parameter_count(spec("resnet110", {{"shortcut", at(0, std::string("pad"))}}), kCifar), 1727962);
  EXPECT_EQ(parameter_count(spec("vgg19"), kCifar), 20035018);
  EXPECT_EQ(parameter_count(spec("wide_resnet50_2"), kImage), 68883240);
  EXPECT_EQ(parameter_count(spec("wide_resnet101_2"), kImage), 126886696);
  EXPECT_EQ(parameter_count(spec("wide_resnet"), kCifar), 36479194);
  EXPECT_EQ(parameter_count(spec("mobilenet_v2"), kImage), 3504872);
  EXPECT_EQ(parameter_count(spec("efficientnet_b0"), kImage), 5288548);
  EXPECT_EQ(parameter_count(spec("efficientnet_b7"), kImage), 66347960);
  EXPECT_EQ(parameter_count(spec("shufflenet_v2_x0_5"), kImage), 1366792);
  EXPECT_EQ(parameter_count(spec("shufflenet_v2_x2_0"), kImage), 7393996);
  EXPECT_EQ(parameter_count(spec("vit_b_16"), kImage), 86567656);
  EXPECT_EQ(parameter_count(spec("vit_l_32"), kImage), 306535400);
  EXPECT_EQ(parameter_count(spec("vit_tiny"), kImage), 5717416);
  EXPECT_EQ(parameter_count(spec("swin_t"), kImage), 28288354);
  EXPECT_EQ(parameter_count(spec("swin_b"), kImage), 87768224);
  const InputInfo gpt2{.sample = {1024}, .classes = 50257, .dtype = DType::i32};
  EXPECT_EQ(parameter_count(spec("gpt2", {{"layers", integer(1)}}), gpt2), 124439808 - 11 * 7087872);
  EXPECT_EQ(parameter_count(spec("mlp", {{"hidden", list({128, 64})}}), {.sample = {28, 28, 1}, .classes = 10}),
            109386);
}

TEST(Models, NameTheirParametersAsTheirOriginals) {
  const auto names = [](const Spec& s, const InputInfo& input) { return build(s, input, 1)->parameters.state(); };
  const StateDict resnet = names(spec("resnet50"), kCifar), gpt = names(spec("gpt"), kFewTokens),
                  llama = names(spec("llama"), kFewTokens), vgg = names(spec("vgg11"), kCifar);
  for (const char* name : {"conv1.weight", "bn1.running_var", "layer1.0.downsample.0.weight", "layer3.5.conv3.weight",
                           "layer4.2.bn3.bias", "fc.bias"})
    EXPECT_EQ(resnet.count(name), 1u) << name;
  for (const char* name : {"wte.weight", "wpe.weight", "h.3.attn.c_attn.bias", "h.0.mlp.c_proj.weight", "ln_f.bias"})
    EXPECT_EQ(gpt.count(name), 1u) << name;
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                           "model.layers.3.post_attention_layernorm.weight", "model.norm.weight", "lm_head.weight"})
    EXPECT_EQ(llama.count(name), 1u) << name;
  for (const char* name : {"features.0.weight", "features.1.running_mean", "features.4.weight", "classifier.0.bias"})
    EXPECT_EQ(vgg.count(name), 1u) << name;
}

TEST(Models, ResolvedSpecHasEveryDefaultAndBuildsTheSame) {
  Spec resolved, again;
  const auto network = build(spec("llama", {{"layers", integer(2)}}), kFewTokens, 3, &resolved);
  EXPECT_EQ(std::get<int64_t>(resolved.settings.at("layers").value), 2);
  EXPECT_EQ(std::get<int64_t>(resolved.settings.at("hidden").value), 384);
  EXPECT_EQ(std::get<double>(resolved.settings.at("rope_base").value), 10000.0);
  EXPECT_FALSE(resolved.settings.contains("rope_factor")) << "runs that are on file would be others";
  const auto twin = build(resolved, kFewTokens, 3, &again);
  EXPECT_EQ(digest(network->parameters.state()), digest(twin->parameters.state()));
  EXPECT_EQ(again.settings.size(), resolved.settings.size());
}

TEST(Models, ErrorsNamePlaceKeyAndNearestSpelling) {
  EXPECT_EQ(error_of(spec("gpt", {{"dropuot", at(12, 0.1)}}), kFewTokens),
            "m.toml:12: model.dropuot is no setting of 'gpt'; did you mean 'dropout'?");
  EXPECT_EQ(error_of(spec("resnet51"), kCifar),
            "m.toml:1: model.kind does not know 'resnet51'; did you mean 'resnet50'?");
  EXPECT_EQ(error_of(spec("gpt", {{"layers", at(4, std::string("six"))}}), kFewTokens),
            "m.toml:4: model.layers must be an integer, got a string");
  EXPECT_EQ(error_of(spec("gpt", {{"heads", at(5, int64_t{3})}}), kFewTokens),
            "m.toml:5: model.heads = 3 must divide channels = 128");
  EXPECT_EQ(error_of(spec("resnet18", {{"stem", at(2, std::string("cifra"))}}), kCifar),
            "m.toml:2: model.stem does not know 'cifra'; did you mean 'cifar'?");
  EXPECT_EQ(error_of(spec("resnet18"), kFewTokens).find("m.toml:1: model.kind = 'resnet18' takes images"), 0u);
  EXPECT_EQ(error_of(spec("gpt"), kCifar).find("m.toml:1: model.kind = 'gpt' takes sequences of tokens"), 0u);
  EXPECT_EQ(error_of(spec("gpt2", {{"context", at(3, int64_t{8})}}), kFewTokens),
            "m.toml:3: model.context = 8 is less than the data's 16 tokens");
  EXPECT_EQ(error_of(spec("vgg11"), {.sample = {31, 40, 3}, .classes = 10}),
            "m.toml:1: model.kind = 'vgg11' takes images of at least 32 x 32 pixels, got 31 x 40");
  EXPECT_EQ(error_of(spec("llama", {{"kv_heads", at(6, int64_t{3})}}), kFewTokens),
            "m.toml:6: model.kv_heads = 3 must divide heads = 4");
  EXPECT_EQ(error_of(spec("gpt", {{"virtual_shards", at(7, int64_t{5})}}), kFewTokens),
            "m.toml:7: model.virtual_shards = 5 is more than heads = 4");
  EXPECT_EQ(
      error_of(spec("llama", {{"kv_heads", at(6, int64_t{2})}, {"virtual_shards", at(7, int64_t{3})}}), kFewTokens),
      "m.toml:7: model.virtual_shards = 3 is more than kv_heads = 2");
  for (const char* kind : {"gpt", "llama"})
    EXPECT_EQ(error_of(spec(kind, {{"experts", at(4, int64_t{2})}, {"virtual_shards", at(7, int64_t{3})}}), kFewTokens),
              "m.toml:7: model.virtual_shards = 3 is more than experts = 2");
  EXPECT_EQ(error_of(spec("gpt", {{"capacity_factor", at(4, 1.0)}}), kFewTokens),
            "m.toml:4: model.capacity_factor needs experts to be set");
  EXPECT_EQ(
      error_of(spec("gpt", {{"experts", at(4, int64_t{2})}, {"experts_per_token", at(5, int64_t{3})}}), kFewTokens),
      "m.toml:5: model.experts_per_token = 3 is more than experts = 2");
  EXPECT_EQ(error_of(spec("gpt", {{"experts", at(4, int64_t{2})}, {"expert_every", at(5, int64_t{9})}}), kFewTokens),
            "m.toml:5: model.expert_every = 9 is more than layers = 4: no block has experts");
  EXPECT_EQ(error_of(spec("gpt", {{"virtual_shards", at(7, int64_t{0})}}), kFewTokens),
            "m.toml:7: model.virtual_shards must lie between 1 and 64, got 0");
  EXPECT_EQ(error_of(spec("resnet18", {{"virtual_shards", at(7, int64_t{2})}}), kCifar),
            "m.toml:7: model.virtual_shards is no setting of 'resnet18'; valid are stem, shortcut, zero_init_residual");
  EXPECT_EQ(error_of(spec("vit_tiny", {{"patch", at(2, int64_t{5})}}), kCifar),
            "m.toml:2: model.patch = 5 must divide the sides of images of 32 x 32 pixels");
  EXPECT_EQ(error_of(spec("vit_tiny", {{"heads", at(3, int64_t{5})}}), kCifar),
            "m.toml:3: model.heads = 5 must divide channels = 192");
  EXPECT_EQ(error_of(spec("vit_b_16", {{"virtual_shards", at(3, int64_t{13})}}), kImage),
            "m.toml:3: model.virtual_shards = 13 is more than heads = 12");
  EXPECT_EQ(error_of(spec("swin_t", {{"heads", at(3, std::vector<int64_t>{3, 6, 12})}}), kImage),
            "m.toml:3: model.heads and blocks must be of one length, a number for each of one to eight stages");
  EXPECT_EQ(error_of(spec("swin_t", {{"heads", at(3, std::vector<int64_t>{3, 6, 12, 25})}}), kImage),
            "m.toml:3: model.heads has 25, which does not divide 768 channels");
  EXPECT_EQ(error_of(spec("swin_t", {{"patch", at(3, int64_t{33})}}), kCifar),
            "m.toml:3: model.patch = 33 is more than a side of images of 32 x 32 pixels");
  EXPECT_EQ(error_of(spec("swin_t", {{"virtual_shards", at(3, int64_t{4})}}), kImage),
            "m.toml:3: model.virtual_shards = 4 is more than the heads of a stage = 3");
  EXPECT_EQ(error_of(spec("wide_resnet", {{"depth", at(4, int64_t{20})}}), kCifar),
            "m.toml:4: model.depth = 20 must be 6 n + 4, such as 16, 22, 28 or 40");
  EXPECT_EQ(error_of(spec("mobilenet_v2", {{"width", at(5, 0.0)}}), kCifar),
            "m.toml:5: model.width must lie between 0.01 and 100, got 0");
  EXPECT_EQ(error_of(spec("mobilenet_v2", {{"stochastic_depth", at(5, 0.2)}}), kCifar),
            "m.toml:5: model.stochastic_depth is no setting of 'mobilenet_v2'; valid are width, depth, stem, dropout");
  EXPECT_EQ(error_of(spec("efficientnet_b0", {{"stochastic_depth", at(6, 1.0)}}), kCifar),
            "m.toml:6: model.stochastic_depth must lie between 0 and 0.99, got 1");
  EXPECT_EQ(error_of(spec("shufflenet_v2_x3_0"), kCifar),
            "m.toml:1: model.kind does not know 'shufflenet_v2_x3_0'; did you mean 'shufflenet_v2_x1_0'?");
  Spec nowhere = spec("resnet51");
  nowhere.place.clear();
  EXPECT_EQ(error_of(nowhere, kCifar), "model.kind does not know 'resnet51'; did you mean 'resnet50'?");
}

// A small ResNet declared by layers: stem, a plain residual, one that halves the image, and a head.
Spec declared_resnet() {
  const auto conv = [](int64_t out, int64_t stride) {
    return spec("conv2d",
                {{"out", integer(out)}, {"stride", integer(stride)}, {"padding", integer(1)}, {"bias", at(0, false)}});
  };
  const Spec norm = spec("batch_norm"), relu = spec("relu");
  const Spec plain = spec("residual", {{"activation", at(0, std::string("relu"))}},
                          {{"layer", {conv(8, 1), norm, relu, conv(8, 1), norm}}});
  const Spec halving = spec(
      "residual", {{"activation", at(0, std::string("relu"))}},
      {{"layer", {conv(16, 2), norm, relu, conv(16, 1), norm}},
       {"shortcut", {spec("conv2d", {{"out", integer(16)}, {"kernel", integer(1)}, {"stride", integer(2)}}), norm}}});
  return spec("layers", {},
              {{"layer", {conv(8, 1), norm, relu, plain, halving, spec("global_avg_pool"), spec("linear")}}});
}

Spec declared_transformer() {
  const Spec attention = spec("attention", {{"heads", integer(4)}, {"kv_heads", integer(2)}, {"rotary", at(0, true)}});
  const Spec attend = spec("residual", {}, {{"layer", {spec("rms_norm"), attention}}});
  const Spec gate = spec("parallel", {{"join", at(0, std::string("mul"))}},
                         {{"branch",
                           {spec("", {}, {{"layer", {spec("linear", {{"out", integer(48)}}), spec("silu")}}}),
                            spec("", {}, {{"layer", {spec("linear", {{"out", integer(48)}})}}})}}});
  const Spec perceptron = spec(
      "residual", {}, {{"layer", {spec("rms_norm"), gate, spec("linear", {{"out", integer(32)}}), spec("dropout")}}});
  const Spec mixture =
      spec("residual", {},
           {{"layer", {spec("rms_norm"), spec("experts", {{"experts", integer(4)}, {"hidden", integer(48)}})}}});
  return spec("layers", {},
              {{"layer",
                {spec("embedding", {{"channels", integer(32)}}), spec("position"),
                 spec("repeat", {{"times", integer(2)}}, {{"layer", {attend, perceptron, mixture}}}),
                 spec("layer_norm"), spec("linear", {{"name", at(0, std::string("head"))}, {"bias", at(0, false)}})}}});
}

Spec declared_transformer_in_shards() {
  Spec sharded = declared_transformer();
  sharded.settings["virtual_shards"] = at(5, int64_t{2});
  return sharded;
}

TEST(LayeredNetwork, BuildsWithNamesByPlace) {
  const auto network = build(declared_resnet(), kCifar, 1);
  const StateDict state = network->parameters.state();
  EXPECT_EQ(state.at("3.layer.0.weight").shape(), Shape({8, 3, 3, 8}));
  EXPECT_EQ(state.at("4.shortcut.0.weight").shape(), Shape({16, 1, 1, 8}));
  EXPECT_EQ(state.at("6.weight").shape(), Shape({10, 16}));
  const StateDict transformer = build(declared_transformer(), kFewTokens, 1)->parameters.state();
  EXPECT_EQ(transformer.at("2.1.0.layer.1.k.weight").shape(), Shape({16, 32}));
  EXPECT_EQ(transformer.at("2.1.2.layer.1.gate.weight").shape(), Shape({4, 32}));
  EXPECT_EQ(transformer.at("2.1.2.layer.1.experts.down.weight").shape(), Shape({4, 48, 32}));
  EXPECT_EQ(transformer.at("head.weight").shape(), Shape({50, 32}));
}

TEST(LayeredNetwork, ShardsCutLinearAttentionEmbeddingAndExperts) {
  Spec sharded = declared_transformer_in_shards();
  const auto whole = build(declared_transformer(), kFewTokens, 1), cut = build(sharded, kFewTokens, 1);
  EXPECT_EQ(digest(cut->parameters.whole_state()), digest(whole->parameters.state()));
  const StateDict state = cut->parameters.state();
  EXPECT_EQ(state.at("0.weight@1").shape(), Shape({25, 32}));
  EXPECT_EQ(state.at("2.1.0.layer.1.k.weight@0").shape(), Shape({8, 32}));
  EXPECT_EQ(state.at("2.1.0.layer.1.out.weight@1").shape(), Shape({32, 16}));
  EXPECT_EQ(state.at("2.1.0.layer.1.out.bias").shape(), Shape({32}));
  EXPECT_EQ(state.at("2.1.2.layer.1.experts.up.weight@1").shape(), Shape({2, 32, 48}));
  EXPECT_EQ(state.at("head.weight@0").shape(), Shape({25, 32}));
  const Tensor input = Tensor::from(std::vector<int32_t>{3, 1, 4, 1, 5, 9}, {1, 6});
  const NoGrad constant;
  Context context;
  const Tensor a = whole->forward(input, context).value(), b = cut->forward(input, context).value();
  // Shards change the order of float32 sums: logits of about 1 differ by some units of 2^-23 (1.2e-7).
  for (int64_t i = 0; i < a.numel(); ++i) EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5);
  sharded.settings["virtual_shards"] = at(5, int64_t{3});
  EXPECT_EQ(error_of(sharded, kFewTokens),
            "model.layer.layer.layer.kv_heads = 2 is less than model.virtual_shards = 3");
}

TEST(LayeredNetwork, WeightsMayBeginOrthogonal) {
  const Spec linear = spec(
      "linear",
      {{"out", integer(5)}, {"bias", at(0, false)}, {"init", at(0, std::string("orthogonal"))}, {"gain", at(0, 2.0)}});
  const auto network = build(spec("layers", {}, {{"layer", {spec("flatten"), linear}}}), {{2, 2, 2}, 5}, 1);
  const Tensor weight = network->parameters.list.at(0).var.value();
  ASSERT_EQ(weight.shape(), (Shape{5, 8}));
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      double product = 0;
      for (int64_t k = 0; k < 8; ++k)
        product += double{weight.data<float>()[i * 8 + k]} * weight.data<float>()[j * 8 + k];
      EXPECT_NEAR(product, i == j ? 4 : 0, 4 * 0x1p-23);  // elements are rounded to float32
    }
}

TEST(LayeredNetwork, ErrorsNameTheLayersLine) {
  const auto network = [](std::vector<Spec> layers) { return spec("layers", {}, {{"layer", std::move(layers)}}); };
  Spec pool = spec("max_pool", {{"kernle", at(9, int64_t{2})}});
  EXPECT_EQ(error_of(network({pool}), kCifar),
            "m.toml:9: model.layer.kernle is no setting of 'max_pool'; did you mean 'kernel'?");
  Spec unknown = spec("covn2d");
  unknown.place = "m.toml:7";
  EXPECT_EQ(error_of(network({unknown}), kCifar),
            "m.toml:7: model.layer.kind does not know 'covn2d'; did you mean 'conv2d'?");
  EXPECT_NE(error_of(network({spec("flatten")}), kCifar).find("ends with (3072,) a sample where (10,) is expected"),
            std::string::npos);
  EXPECT_NE(error_of(network({spec("linear")}), kFewTokens).find("put an \"embedding\" first"), std::string::npos);
  EXPECT_NE(error_of(network({spec("conv2d")}), kCifar).find("model.layer.out is missing"), std::string::npos);
  EXPECT_NE(error_of(spec("layers"), kCifar).find("[[model.layer]]"), std::string::npos);
  const Spec wide = spec("residual", {}, {{"layer", {spec("conv2d", {{"out", integer(8)}})}}});
  EXPECT_NE(error_of(network({wide}), kCifar).find("must agree in shape"), std::string::npos);
  Spec deep = spec("residual", {}, {{"layer", {spec("conv2d", {{"out", at(8, int64_t{0})}})}}});
  EXPECT_EQ(error_of(network({deep}), kCifar),
            "m.toml:8: model.layer.layer.out must lie between 1 and 16777216, got 0");
  // With eps 0, equal numbers would be normalised to 0 / 0.
  for (const char* norm : {"batch_norm", "layer_norm", "rms_norm", "group_norm"})
    EXPECT_NE(error_of(network({spec(norm, {{"eps", {0.0}}, {"groups", integer(1)}})}), kCifar)
                  .find("model.layer.eps must lie between 1.17549"),
              std::string::npos)
        << norm;
}

struct Sample {
  Tensor input, target;
};

Sample images(int64_t n, const InputInfo& info) {
  Sample s{Tensor::empty({n, info.sample[0], info.sample[1], info.sample[2]}), Tensor::zeros({n}, DType::i64)};
  int64_t i = 0;
  for (float& x : s.input.span<float>()) x = static_cast<float>((i += 7919) % 1009) / 504.5f - 1.0f;
  for (int64_t k = 0; k < n; ++k) s.target.data<int64_t>()[k] = k % info.classes;
  return s;
}

Sample tokens(int64_t n, const InputInfo& info) {
  Sample s{Tensor::empty({n, info.sample[0]}, DType::i32), Tensor::empty({n, info.sample[0]}, DType::i64)};
  int64_t i = 0;
  for (int32_t& x : s.input.span<int32_t>()) x = static_cast<int32_t>((i += 7919) % 1009 % info.classes);
  for (int64_t& x : s.target.span<int64_t>()) x = (i += 7919) % 1009 % info.classes;
  return s;
}

Digest digest_of(const MicroBatchResult& r) {
  StateDict all;
  for (size_t i = 0; i < r.gradients.size(); ++i) all[fmt::format("g{}", i)] = r.gradients[i];
  for (size_t i = 0; i < r.statistics.size(); ++i) {
    all[fmt::format("m{}", i)] = r.statistics[i].batch.mean;
    all[fmt::format("v{}", i)] = r.statistics[i].batch.var;
  }
  all["loss"] = Tensor::scalar(r.loss_sum, DType::f64);
  return digest(all);
}

struct MicroBatchCase {
  Spec model;
  InputInfo input;
};

std::vector<MicroBatchCase> micro_batch_cases() {
  const InputInfo small{.sample = {16, 16, 3}, .classes = 10};
  return {
      {spec("mlp", {{"dropout", at(0, 0.2)}}), small},
      {spec("resnet", {{"blocks", list({1, 1})}, {"widths", list({8, 16})}}), small},
      {spec("resnet", {{"blocks", list({1, 1})}, {"widths", list({8, 16})}, {"shortcut", at(0, std::string("pad"))}}),
       small},
      {spec("resnet", {{"blocks", list({1, 1})}, {"widths", list({4, 8})}, {"bottleneck", at(0, true)}}), small},
      {spec("vgg11"), {.sample = {32, 32, 3}, .classes = 10}},
      {spec("mobilenet_v2", {{"width", at(0, 0.1)}, {"depth", at(0, 0.3)}}), small},
      {spec("efficientnet_b0", {{"width", at(0, 0.1)}, {"depth", at(0, 0.3)}}), small},
      {spec("shufflenet_v2_x0_5"), small},
      {spec("vit_tiny", {{"layers", integer(2)}, {"channels", integer(48)}, {"dropout", at(0, 0.1)}}), small},
      {spec("gpt", {{"layers", integer(2)}, {"channels", integer(32)}, {"dropout", at(0, 0.1)}}), kFewTokens},
      {spec("gpt", {{"layers", integer(2)}, {"channels", integer(32)}, {"experts", integer(4)}}), kFewTokens},
      {spec("llama", {{"layers", integer(2)}, {"channels", integer(32)}, {"kv_heads", integer(2)}}), kFewTokens},
      {spec("llama", {{"layers", integer(2)}, {"channels", integer(32)}, {"experts", integer(3)}}), kFewTokens},
      {spec("gpt", {{"layers", integer(2)}, {"channels", integer(32)}, {"virtual_shards", integer(3)}}), kFewTokens},
      {declared_resnet(), small},
      {declared_transformer(), kFewTokens},
      {declared_transformer_in_shards(), kFewTokens}};
}

TEST(RankGradient, IsAPureFunctionForAnyThreads) {
  for (const MicroBatchCase& c : micro_batch_cases()) {
    SCOPED_TRACE(c.model.kind);
    const auto network = build(c.model, c.input, 5);
    const Sample s = c.input.dtype == DType::i32 ? tokens(4, c.input) : images(4, c.input);
    const Digest before = digest(network->parameters.state());
    const Rng rng{.seed = 5, .step = 3, .vrank = 1};
    const MicroBatchResult first = micro_batch_gradient(*network, s.input, s.target, {}, rng);
    ASSERT_EQ(first.gradients.size(), network->parameters.list.size());
    EXPECT_EQ(first.count, s.target.numel());
    for (size_t i = 0; i < first.gradients.size(); ++i)
      EXPECT_EQ(first.gradients[i].shape(), network->parameters.list[i].var.shape());
    EXPECT_EQ(digest(network->parameters.state()), before) << "a micro-batch changed the network";
    for (const int threads : {1, 2, 3}) {
      CpuStream stream(threads);
      const StreamScope scope(stream);
      EXPECT_EQ(digest_of(micro_batch_gradient(*network, s.input, s.target, {}, rng)), digest_of(first))
          << threads << " threads";
    }
  }
}

TEST(RankGradient, HandsItsGradientsOverWhileItIsComputed) {
  for (const bool recompute : {false, true})
    for (const MicroBatchCase& c : micro_batch_cases()) {
      SCOPED_TRACE(c.model.kind);
      const auto network = build(c.model, c.input, 5);
      const Sample s = c.input.dtype == DType::i32 ? tokens(4, c.input) : images(4, c.input);
      const Rng rng{.seed = 5, .step = 3, .vrank = 1};
      MicroBatchResult whole = micro_batch_gradient(*network, s.input, s.target, {}, rng, recompute);
      const Digest expected = digest_of(whole);
      MicroBatchResult told;
      std::vector<Tensor> gradients(network->parameters.list.size());
      std::vector<size_t> order;
      MicroBatchProgress progress;
      progress.forward = [&](const MicroBatchResult& result) { told = result; };
      progress.gradient = [&](size_t i, Tensor gradient, const Mark&) {
        EXPECT_FALSE(gradients[i].defined());
        EXPECT_TRUE(gradient.unique());
        gradients[i] = std::move(gradient);
        order.push_back(i);
      };
      const MicroBatchResult result = micro_batch_gradient(*network, s.input, s.target, {}, rng, recompute, progress);
      EXPECT_TRUE(result.gradients.empty());
      EXPECT_EQ(result.count, whole.count);
      EXPECT_EQ(told.count, whole.count);
      EXPECT_EQ(told.statistics.size(), result.statistics.size());
      MicroBatchResult all = result;
      all.gradients = gradients;
      EXPECT_EQ(digest_of(all), expected);
      ASSERT_EQ(order.size(), gradients.size());
      EXPECT_LT(order.back(), order.size() / 2) << "the first parameters' gradients come last";
    }
}

TEST(RankGradient, HandsUntouchedParametersOverInTheirOrder) {
  const auto network = build(spec("gpt", {{"layers", integer(1)}, {"channels", integer(16)}}), kFewTokens, 5);
  std::vector<Parameter>& list = network->parameters.list;
  const size_t used = list.size();
  for (int i = 0; i < 20; ++i)
    list.push_back({.name = fmt::format("unused.{}", i), .var = Var(Tensor::zeros({3}), true)});
  const Sample s = tokens(2, kFewTokens);
  std::vector<size_t> order;
  MicroBatchProgress progress;
  progress.gradient = [&](size_t i, const Tensor&, const Mark&) { order.push_back(i); };
  micro_batch_gradient(*network, s.input, s.target, {}, {}, false, progress);
  ASSERT_EQ(order.size(), list.size());
  for (size_t i = used; i < list.size(); ++i) EXPECT_EQ(order[i], i);
}

TEST(RankGradient, CountsOnlyTargetsThatAreNotIgnored) {
  const auto network = build(spec("gpt", {{"layers", integer(1)}, {"channels", integer(16)}}), kFewTokens, 5);
  const Sample s = tokens(2, kFewTokens);
  Tensor target = s.target.clone();
  for (int64_t i = 0; i < 10; ++i) target.data<int64_t>()[i] = -100;
  const BatchScore all = evaluate(*network, s.input, s.target), some = evaluate(*network, s.input, target);
  EXPECT_EQ(all.count, 32);
  EXPECT_EQ(some.count, 22);
  EXPECT_LT(some.loss_sum, all.loss_sum);
  EXPECT_LE(some.correct, all.correct);
}

TEST(RankGradient, SeveralViewsCountByTheMeanOfTheirLogits) {
  const auto network = build(spec("gpt", {{"layers", integer(1)}, {"channels", integer(16)}}), kFewTokens, 5);
  const Sample s = tokens(2, kFewTokens), other = tokens(3, kFewTokens);
  const Tensor different = other.input.slice(0, 0, 2).to_contiguous();
  const auto loss = [&](const std::vector<Inputs>& views) { return evaluate(*network, views, s.target).loss_sum; };
  EXPECT_EQ(loss({s.input}), evaluate(*network, s.input, s.target).loss_sum);
  EXPECT_EQ(loss({s.input, s.input}), loss({s.input}));  // doubling and halving are exact
  const NoGrad constant;
  Context context;
  const Tensor sum = add(network->forward(s.input, context).value(), network->forward(different, context).value());
  EXPECT_EQ(loss({s.input, different}), cross_entropy(Var(div(sum, 2.0)), s.target).value().item());
  EXPECT_THROW(loss({}), UsageError);
}

}  // namespace
}  // namespace elinvar
