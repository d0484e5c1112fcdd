#include "models/published_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "models/published_family.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <class T>
T setting_of(const Spec& model, const char* name) {
  return std::get<T>(model.settings.at(name).value);
}

void add_labels(OrderedJson& config, int64_t classes, const std::vector<std::string>& names) {
  OrderedJson::object_t by_number, by_name;  // filled by appending, because inserting searches it each time
  std::set<std::string> used;
  for (int64_t i = 0; i < classes; ++i) {
    const bool named = static_cast<int64_t>(names.size()) == classes;
    const std::string name = named ? names[static_cast<size_t>(i)] : fmt::format("LABEL_{}", i);
    by_number.emplace_back(std::to_string(i), name);
    if (used.insert(name).second) by_name.emplace_back(name, i);
  }
  config["id2label"] = std::move(by_number);
  config["label2id"] = std::move(by_name);
}

OrderedJson config_of_gpt(const Spec& model, const StateDict& network) {
  check(!model.settings.contains("experts"),
        "Hugging Face's transformers have no GPT-2 with experts; a path such as model.safetensors writes its weights "
        "alone");
  const double dropout = setting_of<double>(model, "dropout");
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", network.at("wte.weight").dim(0)},
          {"n_positions", network.at("wpe.weight").dim(0)},
          {"n_embd", setting_of<int64_t>(model, "channels")},
          {"n_layer", setting_of<int64_t>(model, "layers")},
          {"n_head", setting_of<int64_t>(model, "heads")},
          {"n_inner", nullptr},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", dropout},
          {"embd_pdrop", dropout},
          {"attn_pdrop", 0.0},
          {"layer_norm_epsilon", 1e-5},
          {"initializer_range", 0.02},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false},
          {"add_cross_attention", false},
          {"tie_word_embeddings", setting_of<bool>(model, "tied_head")}};
}

// Adds what a MixtralForCausalLM has beyond a LlamaForCausalLM.
void add_experts(const Spec& model, OrderedJson& config) {
  const auto chosen = setting_of<int64_t>(model, "experts_per_token"),
             every = setting_of<int64_t>(model, "expert_every");
  check(every == 1 && chosen > 1 && config["model_type"] == "llama",
        "Hugging Face's transformers have no LLaMA with expert_every = {}, experts_per_token = {} and qkv_bias = {}; "
        "Mixtral has 1, more than 1, and false; a path such as model.safetensors writes its weights alone",
        every, chosen, config["model_type"] != "llama");
  // Theirs is a loss of the mean over all layers' choices, in which a token counts once for each expert that it
  // chooses.
  const double coefficient = setting_of<double>(model, "balance_weight") *
                             static_cast<double>(setting_of<int64_t>(model, "layers")) / static_cast<double>(chosen);
  config.update({{"architectures", {"MixtralForCausalLM"}},
                 {"model_type", "mixtral"},
                 {"sliding_window", nullptr},
                 {"num_local_experts", setting_of<int64_t>(model, "experts")},
                 {"num_experts_per_tok", chosen},
                 {"router_aux_loss_coef", coefficient},
                 {"router_jitter_noise", 0.0},
                 {"output_router_logits", false}});
}

OrderedJson config_of_llama(const Spec& model, const StateDict& network, int64_t context) {
  const NamedValues settings = own_settings(model, network);
  const bool qwen = std::get<bool>(settings.at("qkv_bias"));
  const int64_t channels = setting_of<int64_t>(model, "channels"), heads = setting_of<int64_t>(model, "heads");
  const double base = setting_of<double>(model, "rope_base");
  OrderedJson config = {{"architectures", {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                        {"model_type", qwen ? "qwen2" : "llama"},
                        {"vocab_size", network.at("model.embed_tokens.weight").dim(0)},
                        {"hidden_size", channels},
                        {"intermediate_size", setting_of<int64_t>(model, "hidden")},
                        {"num_hidden_layers", setting_of<int64_t>(model, "layers")},
                        {"num_attention_heads", heads},
                        {"num_key_value_heads", setting_of<int64_t>(model, "kv_heads")},
                        {"hidden_act", "silu"},
                        {"initializer_range", 0.02},
                        {"rms_norm_eps", setting_of<double>(model, "norm_eps")},
                        {"rope_theta", base},
                        {"rope_scaling", nullptr},
                        {"attention_dropout", 0.0},
                        {"tie_word_embeddings", setting_of<bool>(model, "tied_head")}};
  if (qwen) config["use_sliding_window"] = false;
  else config.update({{"head_dim", channels / heads}, {"attention_bias", false}, {"mlp_bias", false}});
  if (model.settings.contains("rope_factor")) {
    const double factor = setting_of<double>(model, "rope_factor");
    const auto original = setting_of<int64_t>(model, "rope_original_context");
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"rope_theta", base},
                              {"factor", factor},
                              {"low_freq_factor", setting_of<double>(model, "rope_low_freq_factor")},
                              {"high_freq_factor", setting_of<double>(model, "rope_high_freq_factor")},
                              {"original_max_position_embeddings", original}};
    context = std::max(context, static_cast<int64_t>(factor * static_cast<double>(original)));
  }
  config["max_position_embeddings"] = context;
  if (model.settings.contains("experts")) add_experts(model, config);
  return config;
}

// `words` is the embedding of tokens; settings of the sizes begin with `part`.
OrderedJson config_of_encoder(const Spec& model, const Tensor& words, const std::string& part) {
  const auto size = [&](const char* name) { return setting_of<int64_t>(model, (part + name).c_str()); };
  return {{"vocab_size", words.dim(0)},
          {"hidden_size", size("channels")},
          {"num_hidden_layers", size("layers")},
          {"num_attention_heads", size("heads")},
          {"intermediate_size", size("hidden")},
          {"hidden_act", "gelu"},
          {"hidden_dropout_prob", setting_of<double>(model, "dropout")},
          {"attention_probs_dropout_prob", 0.0},
          {"max_position_embeddings", setting_of<int64_t>(model, "context")},
          {"type_vocab_size", 2},
          {"initializer_range", 0.02},
          {"layer_norm_eps", 1e-12},
          {"position_embedding_type", "absolute"},
          {"tie_word_embeddings", true}};
}

OrderedJson config_of_bert(const Spec& model, const StateDict& network) {
  const bool pooled = setting_of<std::string>(model, "head") == "pooled";
  OrderedJson config = config_of_encoder(model, network.at("bert.embeddings.word_embeddings.weight"), "");
  config.update(
      {{"architectures", {pooled ? "BertForSequenceClassification" : "BertForMaskedLM"}}, {"model_type", "bert"}});
  return config;
}

OrderedJson config_of_electra(const Spec& model, const StateDict& network, const std::string& folder) {
  const Tensor& words = network.at("discriminator.electra.embeddings.word_embeddings.weight");
  OrderedJson config = config_of_encoder(model, words, folder.empty() ? "" : folder + "_");
  config.update({{"architectures", {folder.empty() ? "ElectraForPreTraining" : "ElectraForMaskedLM"}},
                 {"model_type", "electra"},
                 {"embedding_size", setting_of<int64_t>(model, "embedding")}});
  return config;
}

OrderedJson config_of_t5(const Spec& model, const StateDict& network, const PublishedFacts& facts) {
  const OrderedJson start = facts.start ? OrderedJson(*facts.start) : OrderedJson();
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"model_type", "t5"},
          {"vocab_size", network.at("shared.weight").dim(0)},
          {"d_model", setting_of<int64_t>(model, "channels")},
          {"d_kv", setting_of<int64_t>(model, "head_channels")},
          {"d_ff", setting_of<int64_t>(model, "hidden")},
          {"num_layers", setting_of<int64_t>(model, "layers")},
          {"num_decoder_layers", setting_of<int64_t>(model, "decoder_layers")},
          {"num_heads", setting_of<int64_t>(model, "heads")},
          {"relative_attention_num_buckets", setting_of<int64_t>(model, "buckets")},
          {"relative_attention_max_distance", setting_of<int64_t>(model, "max_distance")},
          {"dropout_rate", setting_of<double>(model, "dropout")},
          {"layer_norm_epsilon", 1e-6},
          {"feed_forward_proj", setting_of<bool>(model, "gated") ? "gated-gelu" : "relu"},
          {"is_encoder_decoder", true},
          {"tie_word_embeddings", setting_of<bool>(model, "tied_head")},
          {"pad_token_id", 0},
          {"decoder_start_token_id", start}};
}

OrderedJson config_of_resnet(const Spec& model, const StateDict& network) {
  check(
      setting_of<std::string>(model, "stem") == "imagenet" &&
          setting_of<std::string>(model, "shortcut") == "projection",
      "Hugging Face's transformers have no network of kind '{}' with stem = \"{}\" and shortcut = \"{}\"; a path such "
      "as model.safetensors writes its weights alone",
      model.kind, setting_of<std::string>(model, "stem"), setting_of<std::string>(model, "shortcut"));
  const NamedValues form = form_of_resnet(network);
  const bool bottleneck = std::get<bool>(form.at("bottleneck"));
  auto widths = std::get<std::vector<int64_t>>(form.at("widths"));
  const int64_t first = widths[0];
  if (bottleneck)
    for (int64_t& width : widths) width *= 4;
  return {{"architectures", {"ResNetForImageClassification"}},
          {"model_type", "resnet"},
          {"num_channels", network.at("conv1.weight").dim(3)},
          {"embedding_size", first},
          {"hidden_sizes", widths},
          {"depths", std::get<std::vector<int64_t>>(form.at("blocks"))},
          {"layer_type", bottleneck ? "bottleneck" : "basic"},
          {"hidden_act", "relu"},
          {"downsample_in_first_stage", false},
          {"downsample_in_bottleneck", false}};
}

OrderedJson config_of_vgg(const Spec& model, const StateDict& network) {
  check(setting_of<std::string>(model, "head") == "imagenet",
        "torchvision has no network of kind '{}' with head = \"cifar\"; a path such as model.safetensors writes its "
        "weights alone",
        model.kind);
  const bool norm = std::get<bool>(own_settings(model, network).at("batch_norm"));
  return {{"architectures", {model.kind + (norm ? "_bn" : "")}}, {"library_name", "torchvision"}};
}

OrderedJson config_of_torchvision(const Spec& model, const StateDict& network) {
  const NamedValues own = own_settings(model, network);
  for (const auto& [name, value] : torchvision_settings(model))
    check(same_value(own.at(name), value),
          "torchvision has no network of kind '{}' with {} = {}, which is {} there; a path such as model.safetensors "
          "writes its weights alone",
          model.kind, name, shown(own.at(name)), shown(value));
  return {{"architectures", {model.kind}}, {"library_name", "torchvision"}};
}

}  // namespace

std::string published_config(const Spec& model, const StateDict& network, const PublishedFacts& facts,
                             const std::string& folder) {
  const std::string family = family_of(model);
  check(!family.empty(),
        "neither Hugging Face's transformers nor torchvision has a network of kind '{}'; a path such as "
        "model.safetensors writes its weights alone",
        model.kind);
  const bool images = !is_of_text(family), torchvision = images && family != "resnet";
  OrderedJson config;
  if (family == "gpt") config = config_of_gpt(model, network);
  else if (family == "llama") config = config_of_llama(model, network, facts.context);
  else if (family == "bert") config = config_of_bert(model, network);
  else if (family == "electra") config = config_of_electra(model, network, folder);
  else if (family == "t5") config = config_of_t5(model, network, facts);
  else if (family == "resnet") config = config_of_resnet(model, network);
  else if (family == "vgg") config = config_of_vgg(model, network);
  else config = config_of_torchvision(model, network);
  if (images || network.contains("classifier.weight")) {
    const int64_t classes = network.at(weight_of_classes(network)).dim(0);
    if (torchvision) config["num_classes"] = classes;
    add_labels(config, classes, facts.class_names);
  }
  if (!images) {
    const OrderedJson end = facts.end_of_text ? OrderedJson(*facts.end_of_text) : OrderedJson();
    config.update({{"use_cache", true}, {"bos_token_id", end}, {"eos_token_id", end}});
  }
  config["torch_dtype"] = "float32";
  return config.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace elinvar
