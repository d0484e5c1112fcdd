// The config.json of exported networks, and the comparison of imported ones with it.
#include "models/published_config.h"

#include <gtest/gtest.h>

#include "tests/models/published_cases.h"

namespace elinvar::test::exchange {
namespace {

TEST(PublishedConfig, NamesTheClassAndItsSizes) {
  expect_entries(Outline(gpt({{"dropout", 0.1}})).config({.end_of_text = 3}), {{"model_type", "gpt2"},
                                                                               {"architectures", {"GPT2LMHeadModel"}},
                                                                               {"vocab_size", 40},
                                                                               {"n_positions", 20},
                                                                               {"n_embd", 16},
                                                                               {"n_layer", 2},
                                                                               {"n_head", 2},
                                                                               {"activation_function", "gelu_new"},
                                                                               {"layer_norm_epsilon", 1e-5},
                                                                               {"resid_pdrop", 0.1},
                                                                               {"attn_pdrop", 0.0},
                                                                               {"tie_word_embeddings", true},
                                                                               {"eos_token_id", 3}});
  expect_entries(Outline(llama()).config({.context = 12}), {{"model_type", "llama"},
                                                            {"architectures", {"LlamaForCausalLM"}},
                                                            {"vocab_size", 40},
                                                            {"hidden_size", 16},
                                                            {"intermediate_size", 24},
                                                            {"num_hidden_layers", 2},
                                                            {"num_attention_heads", 4},
                                                            {"num_key_value_heads", 2},
                                                            {"head_dim", 4},
                                                            {"max_position_embeddings", 12},
                                                            {"rms_norm_eps", 1e-6},
                                                            {"rope_theta", 10000.0},
                                                            {"rope_scaling", nullptr},
                                                            {"attention_bias", false},
                                                            {"tie_word_embeddings", false},
                                                            {"eos_token_id", nullptr}});
  const Json scaled = Outline(llama31()).config({.context = 12});
  expect_entries(scaled["rope_scaling"], {{"rope_type", "llama3"},
                                          {"factor", 8.0},
                                          {"low_freq_factor", 1.0},
                                          {"high_freq_factor", 4.0},
                                          {"original_max_position_embeddings", 64}});
  EXPECT_EQ(scaled["max_position_embeddings"], 512);
  expect_entries(Outline(llama({{"qkv_bias", true}, {"tied_head", true}})).config(),
                 {{"model_type", "qwen2"},
                  {"architectures", {"Qwen2ForCausalLM"}},
                  {"use_sliding_window", false},
                  {"tie_word_embeddings", true}});
}

TEST(PublishedConfig, OfExperts) {
  expect_entries(Outline(mixtral()).config(), {{"model_type", "mixtral"},
                                               {"architectures", {"MixtralForCausalLM"}},
                                               {"intermediate_size", 24},
                                               {"num_local_experts", 4},
                                               {"num_experts_per_tok", 2},
                                               {"router_aux_loss_coef", 0.04},
                                               {"sliding_window", nullptr}});
  for (const NamedValues& other :
       {NamedValues{{"qkv_bias", true}}, {{"experts_per_token", int64_t{1}}}, {{"expert_every", int64_t{2}}}})
    expect_has(message_of<UsageError>([&] { Outline(mixtral(other)).config(); }),
               {"have no LLaMA with expert_every = ", "a path such as model.safetensors writes its weights alone"});
  for (const char* of_four : {R"({"model_type": "mixtral", "num_local_experts": 4})", R"({"model_type": "mixtral"})"})
    EXPECT_EQ(Outline(mixtral()).complaint(of_four), "");
  expect_has(Outline(mixtral()).complaint(R"({"model_type": "mixtral", "num_local_experts": 8})"),
             {"model.experts = 8 instead of 4"});
  expect_has(Outline(llama()).complaint(R"({"model_type": "mixtral", "num_local_experts": 8})"),
             {"model.experts = 8 instead of none"});
  expect_has(Outline(mixtral()).complaint(R"({"model_type": "llama"})"),
             {"of a network with no model.experts instead of 4"});
  expect_has(Outline(mixtral()).complaint(R"({"model_type": "mixtral", "sliding_window": 4096})"),
             {"\"sliding_window\": 4096 is not in this engine"});
}

TEST(PublishedConfig, OfEncoders) {
  expect_entries(Outline(bert("tokens")).config(), {{"model_type", "bert"},
                                                    {"architectures", {"BertForMaskedLM"}},
                                                    {"vocab_size", 40},
                                                    {"hidden_size", 16},
                                                    {"intermediate_size", 24},
                                                    {"num_hidden_layers", 2},
                                                    {"num_attention_heads", 2},
                                                    {"max_position_embeddings", 12},
                                                    {"hidden_dropout_prob", 0.1},
                                                    {"layer_norm_eps", 1e-12}});
  const Json classifier = Outline(bert("pooled")).config({.class_names = {"a", "b", "c"}});
  expect_entries(classifier,
                 {{"architectures", {"BertForSequenceClassification"}}, {"label2id", {{"a", 0}, {"b", 1}, {"c", 2}}}});
  expect_entries(Outline(t5({{"gated", true}})).config({.end_of_text = 38, .start = 39}),
                 {{"model_type", "t5"},
                  {"architectures", {"T5ForConditionalGeneration"}},
                  {"vocab_size", 40},
                  {"d_model", 16},
                  {"d_kv", 8},
                  {"d_ff", 24},
                  {"num_layers", 1},
                  {"num_decoder_layers", 2},
                  {"num_heads", 2},
                  {"relative_attention_num_buckets", 32},
                  {"feed_forward_proj", "gated-gelu"},
                  {"tie_word_embeddings", true},
                  {"decoder_start_token_id", 39},
                  {"eos_token_id", 38}});
  expect_has(
      Outline(bert("tokens")).complaint(R"({"model_type": "bert", "num_hidden_layers": 12, "hidden_act": "gelu"})"),
      {"model.layers = 12 instead of 2"});
  expect_has(Outline(bert("tokens")).complaint(R"({"hidden_act": "relu"})"),
             {"\"hidden_act\": \"relu\" is not in this"});
  expect_has(Outline(t5()).complaint(R"({"model_type": "t5", "num_layers": 2, "feed_forward_proj": "gated-gelu"})"),
             {"model.gated = true instead of false, model.layers = 2 instead of 1"});
  expect_has(Outline(t5()).complaint(R"({"feed_forward_proj": "gated-silu"})"), {"is not in this engine"});
}

// A checkpoint of BertForPreTraining, with names of 2018.
TEST(PublishedConfig, NamesClassesOfImages) {
  const Json config = Outline(resnet(true)).config();
  expect_entries(config, {{"model_type", "resnet"},
                          {"architectures", {"ResNetForImageClassification"}},
                          {"num_channels", 3},
                          {"embedding_size", 4},
                          {"hidden_sizes", {16, 32}},
                          {"depths", {1, 2}},
                          {"layer_type", "bottleneck"},
                          {"downsample_in_bottleneck", false}});
  EXPECT_EQ(config["id2label"].size(), 10u);
  EXPECT_EQ(config["label2id"]["LABEL_9"], 9);
  std::vector<std::string> names(10, "twice");
  names[3] = "cat";
  const Json named = Outline(resnet(false)).config({.class_names = names});
  expect_entries(named, {{"layer_type", "basic"}, {"hidden_sizes", {4, 8}}, {"label2id", {{"twice", 0}, {"cat", 3}}}});
  EXPECT_EQ(named["id2label"]["3"], "cat");
  expect_entries(Outline(of_images("resnet50", {})).config(),
                 {{"depths", {3, 4, 6, 3}}, {"hidden_sizes", {256, 512, 1024, 2048}}, {"embedding_size", 64}});
  expect_entries(Outline(of_images("vgg16", {})).config(), {{"architectures", {"vgg16_bn"}}, {"num_classes", 10}});
  expect_entries(Outline(of_images("vgg11", {{"batch_norm", false}})).config(), {{"architectures", {"vgg11"}}});
  for (const char* kind :
       {"wide_resnet50_2", "mobilenet_v2", "efficientnet_b1", "shufflenet_v2_x0_5", "vit_b_16", "swin_t"})
    expect_entries(Outline(of_images(kind, {})).config(),
                   {{"architectures", {kind}}, {"library_name", "torchvision"}, {"num_classes", 10}});
}

TEST(PublishedConfig, SaysWhichNetworksHaveNoClass) {
  const auto complaint = [](const ConfigCase& c) { return message_of<UsageError>([&] { Outline(c).config(); }); };
  expect_has(complaint(of_images("resnet20", {})), {"no network of kind 'resnet20' with stem = \"cifar\"",
                                                    "a path such as model.safetensors writes its weights alone"});
  expect_has(complaint(of_images("resnet18", {{"shortcut", std::string("pad")}})), {"shortcut = \"pad\""});
  expect_has(complaint(of_images("vgg11", {{"head", std::string("cifar")}})), {"kind 'vgg11' with head = \"cifar\""});
  expect_has(complaint(of_images("mobilenet_v2", {{"stem", std::string("cifar")}})),
             {"torchvision has no network of kind 'mobilenet_v2' with stem = \"cifar\", which is \"imagenet\" there",
              "a path such as model.safetensors writes its weights alone"});
  expect_has(complaint(of_images("vit_b_16", {{"layers", int64_t{2}}})), {"with layers = 2, which is 12 there"});
  for (const char* kind : {"wide_resnet", "vit_tiny"})
    expect_has(complaint(of_images(kind, {})), {"neither Hugging Face's transformers nor torchvision has a network"});
  expect_has(complaint(of_images("mlp", {})), {"neither Hugging Face's transformers nor torchvision has a network"});
}

TEST(PublishedConfig, RotaryPositionsHaveAnOldAndANewForm) {
  const std::string scaling =
      R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3",
          "original_max_position_embeddings": 64})";
  const std::string heads = R"("num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-06)",
                    old_form = "{" + heads + R"(, "rope_theta": 500, "rope_scaling": )" + scaling + "}",
                    new_form = "{" + heads + R"(, "rope_parameters": )" + scaling.substr(0, scaling.size() - 1) +
                               R"(, "rope_theta": 500.0}})";
  const Outline scaled(llama31()), plain(llama({{"heads", int64_t{2}}, {"rope_base", 500.0}}));
  for (const std::string& form : {old_form, new_form}) {
    EXPECT_EQ(scaled.complaint(form), "");
    expect_has(plain.complaint(form),
               {"config.json is of a network with model.heads = 4 instead of 2",
                "model.rope_factor = 8 instead of none", "model.rope_original_context = 64 instead of none"});
  }
  expect_has(scaled.complaint(R"({"rope_scaling": null})"), {"model.rope_factor = 1 instead of 8"});
  expect_has(plain.complaint(R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})"),
             {"failure: ", "config.json: rotary positions of type \"yarn\" are not in this engine"});
  for (const char* form : {"[]", "{", R"({"rope_scaling": 8})", R"({"rms_norm_eps": "small"})"})
    EXPECT_TRUE(plain.complaint(form).starts_with("failure: ")) << form;
}

TEST(PublishedConfig, EachSettingThatDiffersIsNamed) {
  const Outline of_gpt(gpt()), of_llama(llama()), of_qwen(llama({{"qkv_bias", true}})), of_resnet(resnet(true));
  EXPECT_EQ(of_gpt.complaint(R"({"n_head": 2, "rope_theta": 1})"), "");
  expect_has(of_gpt.complaint(R"({"model_type": "gpt2", "n_layer": 12, "n_head": 4, "n_embd": 16,
                                  "tie_word_embeddings": false})"),
             {"model.heads = 4 instead of 2, model.layers = 12 instead of 2, model.tied_head = false instead of true",
              "set what differs in [model]"});
  expect_has(of_llama.complaint(R"({"model_type": "qwen2", "num_hidden_layers": 2, "intermediate_size": 32})"),
             {"model.hidden = 32 instead of 24, model.qkv_bias = true instead of false"});
  expect_has(of_qwen.complaint(R"({"model_type": "llama", "hidden_size": 16})"),
             {"model.qkv_bias = false instead of true"});
  EXPECT_EQ(of_qwen.complaint(R"({"model_type": "qwen2", "hidden_size": 16})"), "");
  expect_has(of_resnet.complaint(R"({"model_type": "resnet", "depths": [3, 4], "hidden_sizes": [16, 32]})"),
             {"model.blocks = [3, 4] instead of [1, 2]"});
  expect_has(of_resnet.complaint(R"({"layer_type": "basic", "hidden_sizes": [4, 8]})"),
             {"model.bottleneck = false instead of true"});
  expect_has(Outline(of_images("vgg11", {})).complaint(R"({"architectures": ["vgg11"]})"),
             {"model.batch_norm = false instead of true"});
  expect_has(Outline(of_images("mobilenet_v2", {{"width", 0.5}})).complaint(R"({"architectures": ["mobilenet_v2"]})"),
             {"model.width = 1 instead of 0.5; set what differs in [model]"});
  EXPECT_EQ(Outline(of_images("vit_b_32", {})).complaint(R"({"architectures": ["vit_b_32"]})"), "");
  EXPECT_EQ(Outline(of_images("mlp", {})).complaint("no JSON"), "");
}

TEST(PublishedConfig, OtherNetworksAreRefused) {
  const Outline of_gpt(gpt()), of_llama(llama()), of_resnet(resnet(true));
  expect_has(of_gpt.complaint(R"({"model_type": "llama"})"),
             {"of model_type \"llama\", which is of kind 'llama' here; [model] has 'gpt'"});
  expect_has(
      of_llama.complaint(R"({"model_type": "gemma"})"),
      {"failure: ",
       "networks of model_type \"gemma\" are not in this engine; it has bert, electra, gpt2, llama, mistral, mixtral"});
  const auto expect_unknown = [](const Outline& network, const std::string& json, const std::string& part) {
    const std::string said = network.complaint(json);
    EXPECT_TRUE(said.starts_with("failure: ")) << json << ": " << said;
    expect_has(said, {part + " is not in this engine; it has "});
  };
  expect_has(Outline(of_images("vit_b_32", {})).complaint(R"({"architectures": ["vit_b_16"]})"),
             {"is of torchvision's vit_b_16, which is of that kind here; [model] has 'vit_b_32'"});
  expect_unknown(of_gpt, R"({"activation_function": "relu"})", R"("activation_function": "relu")");
  expect_unknown(of_gpt, R"({"n_embd": 16, "n_inner": 32})", R"("n_inner": 32)");
  expect_unknown(of_gpt, R"({"layer_norm_epsilon": 1e-6})", R"("layer_norm_epsilon": 1e-06)");
  expect_unknown(of_llama, R"({"attention_bias": true})", R"("attention_bias": true)");
  expect_unknown(of_llama, R"({"hidden_act": "gelu"})", R"("hidden_act": "gelu")");
  expect_unknown(of_llama, R"({"hidden_size": 16, "num_attention_heads": 4, "head_dim": 8})", R"("head_dim": 8)");
  expect_unknown(of_llama, R"({"model_type": "qwen2", "use_sliding_window": true})", R"("use_sliding_window": true)");
  expect_unknown(of_llama, R"({"model_type": "mistral", "sliding_window": 4096})", R"("sliding_window": 4096)");
  expect_unknown(of_resnet, R"({"downsample_in_bottleneck": true})", R"("downsample_in_bottleneck": true)");
  expect_unknown(of_resnet, R"({"hidden_sizes": [16, 32], "embedding_size": 64})", R"("embedding_size": 64)");
}

}  // namespace
}  // namespace elinvar::test::exchange
