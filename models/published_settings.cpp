// Compares the settings of a network with the config.json of weights that are imported into it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/published.h"
#include "models/published_config.h"
#include "models/published_family.h"
#include "tensor/base/check.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Reads the settings that a config.json describes.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  const NamedValues& settings() const { return settings_; }

  void take(const std::string& setting, const Json& from, const char* key) {
    if (const Json* number = find(from, key, "a number", &Json::is_number)) settings_[setting] = number->get<double>();
  }
  void take(const std::string& setting, const char* key) { take(setting, json_, key); }
  void take_flag(const char* setting, const char* key) {
    if (const Json* flag = find(json_, key, "true or false", &Json::is_boolean)) settings_[setting] = flag->get<bool>();
  }
  void set(const char* setting, Value value) { settings_[setting] = std::move(value); }

  std::vector<int64_t> integers(const char* key) const {
    std::vector<int64_t> values;
    if (const Json* list = find(json_, key, "a list of numbers", &Json::is_array))
      for (const Json& value : *list) {
        if (!value.is_number_integer()) fail("{}: expected a list of numbers for '{}'", place_, key);
        values.push_back(value.get<int64_t>());
      }
    return values;
  }
  // Throws Failure if the key has a value that this engine does not support.
  void expect(const char* key, const std::vector<Json>& supported) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null() || std::ranges::find(supported, *found) != supported.end()) return;
    std::vector<std::string> texts;
    for (const Json& value : supported) texts.push_back(value.dump());
    fail("{}: \"{}\": {} is not in this engine; it has {}", place_, key, found->dump(), fmt::join(texts, " and "));
  }

  void read_rotary() {
    take("rope_base", "rope_theta");
    Json rope;
    for (const char* key : {"rope_scaling", "rope_parameters"})
      if (json_.contains(key) && !json_[key].is_null()) rope = json_[key];
    if (rope.is_null()) rope = Json::object();
    if (!rope.is_object()) fail("{}: expected a JSON object for the scaling of rotary positions", place_);
    take("rope_base", rope, "rope_theta");
    const Json type = rope.value("rope_type", rope.value("type", Json("default")));
    if (type == "llama3") {
      take("rope_factor", rope, "factor");
      take("rope_low_freq_factor", rope, "low_freq_factor");
      take("rope_high_freq_factor", rope, "high_freq_factor");
      take("rope_original_context", rope, "original_max_position_embeddings");
    } else if (type == "default") {
      set("rope_factor", 1.0);
    } else {
      fail("{}: rotary positions of type {} are not in this engine; it has those of \"default\" and \"llama3\"", place_,
           type.dump());
    }
  }

 private:
  const Json* find(const Json& from, const char* key, const char* expected, bool (Json::*is)() const noexcept) const {
    const auto found = from.find(key);
    if (found == from.end() || found->is_null()) return nullptr;
    if (!((*found).*is)()) fail("{}: expected {} for '{}'", place_, expected, key);
    return &*found;
  }

  const Json& json_;
  std::string place_;
  NamedValues settings_;
};

void read_gpt(ConfigReader& config, const Json& json) {
  config.take("layers", "n_layer");
  config.take("heads", "n_head");
  config.take("channels", "n_embd");
  config.take_flag("tied_head", "tie_word_embeddings");
  config.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.expect("layer_norm_epsilon", {1e-5});
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) config.expect(key, {false});
  config.expect("scale_attn_weights", {true});
  if (const auto channels = json.find("n_embd"); channels != json.end() && channels->is_number_integer())
    config.expect("n_inner", {4 * channels->get<int64_t>()});
}

void read_llama(ConfigReader& config, const Json& json, const std::string& type) {
  config.take("layers", "num_hidden_layers");
  config.take("heads", "num_attention_heads");
  config.take("kv_heads", "num_key_value_heads");
  config.take("channels", "hidden_size");
  config.take("hidden", "intermediate_size");
  config.take("norm_eps", "rms_norm_eps");
  config.take_flag("tied_head", "tie_word_embeddings");
  config.expect("hidden_act", {"silu"});
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) config.expect(key, {false});
  if (type == "mistral" || type == "mixtral") config.expect("sliding_window", {nullptr});
  if (!type.empty()) config.set("qkv_bias", type == "qwen2");
  if (type == "mixtral") {
    config.take("experts", "num_local_experts");
    config.take("experts_per_token", "num_experts_per_tok");
    config.set("expert_every", int64_t{1});
  } else if (!type.empty()) {
    config.set("experts", int64_t{0});
  }
  const auto channels = json.find("hidden_size"), heads = json.find("num_attention_heads");
  if (channels != json.end() && heads != json.end() && channels->is_number_integer() && heads->is_number_integer() &&
      heads->get<int64_t>() > 0)
    config.expect("head_dim", {channels->get<int64_t>() / heads->get<int64_t>()});
  config.read_rotary();
}

// `part` comes before the sizes of one of several networks.
void read_bert(ConfigReader& config, const std::string& part = "") {
  config.take(part + "layers", "num_hidden_layers");
  config.take(part + "heads", "num_attention_heads");
  config.take(part + "channels", "hidden_size");
  config.take(part + "hidden", "intermediate_size");
  config.take("context", "max_position_embeddings");
  config.expect("hidden_act", {"gelu"});
  config.expect("layer_norm_eps", {1e-12});
  config.expect("type_vocab_size", {2});
  config.expect("tie_word_embeddings", {true});
  config.expect("position_embedding_type", {"absolute"});
  for (const char* key : {"is_decoder", "add_cross_attention"}) config.expect(key, {false});
}

void read_electra(ConfigReader& config, const std::string& folder) {
  read_bert(config, folder.empty() ? "" : folder + "_");
  config.take("embedding", "embedding_size");
}

void read_t5(ConfigReader& config, const Json& json) {
  config.take("layers", "num_layers");
  config.take("decoder_layers", json.contains("num_decoder_layers") ? "num_decoder_layers" : "num_layers");
  config.take("heads", "num_heads");
  config.take("channels", "d_model");
  config.take("head_channels", "d_kv");
  config.take("hidden", "d_ff");
  config.take("buckets", "relative_attention_num_buckets");
  config.take("max_distance", "relative_attention_max_distance");
  config.take_flag("tied_head", "tie_word_embeddings");
  config.expect("layer_norm_epsilon", {1e-6});
  config.expect("feed_forward_proj", {"relu", "gated-gelu"});
  if (json.contains("feed_forward_proj")) config.set("gated", json["feed_forward_proj"] == "gated-gelu");
}

void read_resnet(ConfigReader& config, const Json& json) {
  config.expect("layer_type", {"basic", "bottleneck"});
  config.expect("hidden_act", {"relu"});
  for (const char* key : {"downsample_in_first_stage", "downsample_in_bottleneck"}) config.expect(key, {false});
  const bool bottleneck = json.value("layer_type", Json("bottleneck")) == "bottleneck";
  if (json.contains("layer_type")) config.set("bottleneck", bottleneck);
  if (const std::vector<int64_t> blocks = config.integers("depths"); !blocks.empty()) config.set("blocks", blocks);
  std::vector<int64_t> widths = config.integers("hidden_sizes");
  if (widths.empty()) return;
  if (bottleneck)
    for (int64_t& width : widths) width /= 4;
  config.expect("embedding_size", {widths[0]});
  config.set("widths", widths);
}

void read_vgg(ConfigReader& config, const Json& json) {
  const Json names = json.value("architectures", Json::array());
  if (!names.is_array() || names.size() != 1 || !names[0].is_string()) return;
  const std::string name = names[0].get<std::string>();
  if (name.starts_with("vgg")) config.set("batch_norm", name.ends_with("_bn"));
}

// The form of torchvision's network of that name.
void read_torchvision(ConfigReader& config, const Json& json, const std::string& place, const Spec& model) {
  const Json names = json.value("architectures", Json::array());
  if (!names.is_array() || names.size() != 1 || !names[0].is_string()) return;
  check(names[0] == model.kind, "{} is of torchvision's {}, which is of that kind here; [model] has '{}'", place,
        names[0].get<std::string>(), model.kind);
  for (const auto& [name, value] : torchvision_settings(model)) config.set(name.c_str(), value);
}

// The family of kinds (models/published_family.h) for each model_type.
const std::map<std::string, std::string>& families() {
  static const std::map<std::string, std::string> all = {
      {"gpt2", "gpt"},      {"llama", "llama"}, {"qwen2", "llama"},     {"mistral", "llama"}, {"mixtral", "llama"},
      {"resnet", "resnet"}, {"bert", "bert"},   {"electra", "electra"}, {"t5", "t5"}};
  return all;
}

// Compares what two networks of an ELECTRA have in common.
void compare_shared(const fs::path& first, const fs::path& second) {
  const Json a = read_json_object(first), b = read_json_object(second);
  for (const char* key : {"vocab_size", "embedding_size", "max_position_embeddings"})
    if (a.contains(key) && b.contains(key) && a[key] != b[key])
      fail("{} has \"{}\": {}, and {} has {}; both networks have the same embeddings in this engine", first.string(),
           key, a[key].dump(), second.string(), b[key].dump());
}

// Whether a [model] may lack the setting, for which own_settings() has a value of its own then.
bool may_be_absent(std::string_view name) { return name == "rope_factor" || name == "experts"; }

// Compares a network with the config.json of one of its folders.
void compare_with(const fs::path& path, const std::string& folder, const Spec& model, const StateDict& network) {
  const std::string family = family_of(model);
  const Json json = read_json_object(path);
  const std::string place = path.string();
  const Json type_value = json.value("model_type", Json(""));
  const std::string type = type_value.is_string() ? type_value.get<std::string>() : type_value.dump();
  if (!type.empty()) {
    const auto found = families().find(type);
    if (found == families().end()) {
      std::vector<std::string> known;
      for (const auto& [name, kinds] : families()) known.push_back(name);
      fail("{}: networks of model_type \"{}\" are not in this engine; it has {}", place, type, fmt::join(known, ", "));
    }
    check(found->second == family,
          "{} is of a network of model_type \"{}\", which is of kind '{}' here; [model] has '{}'", place, type,
          found->second, model.kind);
  }
  ConfigReader config(json, place);
  if (family == "gpt") read_gpt(config, json);
  else if (family == "llama") read_llama(config, json, type);
  else if (family == "bert") read_bert(config);
  else if (family == "electra") read_electra(config, folder);
  else if (family == "t5") read_t5(config, json);
  else if (family == "resnet") read_resnet(config, json);
  else if (family == "vgg") read_vgg(config, json);
  else read_torchvision(config, json, place, model);
  const NamedValues own = own_settings(model, network);
  std::vector<std::string> wrong;
  for (const auto& [name, value] : config.settings()) {
    const auto set = own.find(name);
    if (set != own.end() && same_value(set->second, value)) continue;
    const bool absent = set == own.end() || (may_be_absent(name) && !model.settings.contains(name));
    const bool no_experts = name == "experts" && same_value(value, int64_t{0});
    wrong.push_back((no_experts ? "no model.experts" : fmt::format("model.{} = {}", name, shown(value))) +
                    " instead of " + (absent ? "none" : shown(set->second)));
  }
  check(wrong.empty(), "{} is of a network with {}; set what differs in [model]", place, fmt::join(wrong, ", "));
}

}  // namespace

void check_order_of_classes(const std::vector<std::string>& names, const fs::path& weights) {
  const fs::path path = (fs::is_directory(weights) ? weights : weights.parent_path()) / "config.json";
  if (!fs::exists(path)) return;
  const Json labels = read_json_object(path).value("id2label", Json());
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = labels.find(std::to_string(i));
    if (found == labels.end() || !found->is_string()) return;
    const std::string theirs = found->get<std::string>();
    check(theirs == names[i] || std::ranges::find(names, theirs) == names.end(),
          "{} has the class '{}' as number {}, which is '{}' in these data; reorder the rows of its last layer, or let "
          "--except leave that layer new",
          path.string(), theirs, i, names[i]);
  }
}

void check_published_settings(const Spec& model, const StateDict& network, const fs::path& weights) {
  if (family_of(model).empty()) return;  // other kinds have no published config.json
  const fs::path whole = fs::is_directory(weights) ? weights : weights.parent_path();
  std::map<std::string, fs::path> configs;  // by folder
  for (const std::string& folder : published_folders(model))
    if (const fs::path path = whole / folder / "config.json"; fs::exists(path)) configs.emplace(folder, path);
  if (configs.size() > 1) compare_shared(configs.begin()->second, configs.rbegin()->second);
  for (const auto& [folder, path] : configs) compare_with(path, folder, model, network);
}

}  // namespace elinvar
