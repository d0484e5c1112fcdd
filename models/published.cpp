#include "models/published.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "nn/parameters.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/copy.h"
#include "tensor/safetensors.h"
#include "tensor/state.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kVggChannels = 512;
constexpr size_t kMostNamed = 5;  // in a message

bool is_product_of_gpt(const Spec& model, std::string_view name) {
  return model.kind.starts_with("gpt") &&
         (name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") || name.ends_with("c_fc.weight"));
}
bool reads_image_of_vgg(const Spec& model, std::string_view name) {
  return model.kind.starts_with("vgg") && name == "classifier.0.weight";
}

// Returns `own` as a view in the published layout; as a copy for VGG's classifier, whose columns are permuted.
Tensor to_published(const Spec& model, std::string_view name, const Tensor& own) {
  if (own.ndim() == 4) return own.permute({0, 3, 1, 2});
  if (is_product_of_gpt(model, name)) return own.transpose(0, 1);
  if (reads_image_of_vgg(model, name)) {
    const int64_t out = own.dim(0), pixels = own.dim(1) / kVggChannels;
    return own.reshape({out, pixels, kVggChannels}).transpose(1, 2).to_contiguous().reshape(own.shape());
  }
  return own;
}

Tensor from_published(const Spec& model, std::string_view name, const Tensor& theirs) {
  if (theirs.ndim() == 4) return theirs.permute({0, 2, 3, 1});
  if (is_product_of_gpt(model, name)) return theirs.transpose(0, 1);
  if (reads_image_of_vgg(model, name)) {
    const int64_t out = theirs.dim(0), pixels = theirs.dim(1) / kVggChannels;
    return theirs.reshape({out, kVggChannels, pixels}).transpose(1, 2).to_contiguous().reshape(theirs.shape());
  }
  return theirs;
}

// Whether a tensor is one that other programs save in addition: counters of batch norms, attention masks, rotary
// tables.
bool is_no_weight(std::string_view name, const Tensor& tensor) {
  return name.ends_with("num_batches_tracked") || name.ends_with("attn.masked_bias") ||
         (name.ends_with("attn.bias") && tensor.ndim() == 4) || name.ends_with("rotary_emb.inv_freq");
}

// For a network whose head is the embedding: whether the published head equals the embedding.
bool repeats_embedding(const StateDict& weights, const Tensor& head) {
  return std::ranges::any_of(weights, [&](const auto& entry) {
    const auto& [name, tensor] = entry;
    return (name.ends_with("wte.weight") || name.ends_with("embed_tokens.weight")) && tensor.shape() == head.shape() &&
           tensor.dtype() == head.dtype() && digest(tensor) == digest(head);
  });
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kMostNamed) text += fmt::format(" and {} more", names.size() - kMostNamed);
  return text;
}

StateDict read_index(const fs::path& path) {
  const Json map = read_json_object(path).value("weight_map", Json());
  if (!map.is_object()) fail("{}: expected a JSON object with a \"weight_map\"", path.string());
  std::map<std::string, std::set<std::string>> names;
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string()) fail("{}: expected the name of a file for '{}'", path.string(), name);
    const std::string text = file.get<std::string>();
    // An untrusted index must not reach other folders.
    if (fs::path(text).filename() != text) fail("{}: '{}' is no file beside it", path.string(), text);
    names[text].insert(name);
  }
  StateDict all;
  for (const auto& [file, wanted] : names) {
    StateDict part = read_safetensors(path.parent_path() / file).tensors;
    for (const std::string& name : wanted) {
      const auto found = part.find(name);
      if (found == part.end()) fail("{}: '{}' is not in {}", path.string(), name, file);
      all.emplace(name, found->second);
    }
  }
  return all;
}

fs::path file_of(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(path / name)) return path / name;
  fail("{} has neither model.safetensors nor model.safetensors.index.json", path.string());
}

// The settings that a config.json describes, under their names in this engine.
using PublishedSettings = std::vector<std::pair<std::string, double>>;

PublishedSettings published_settings(const Spec& model, const Json& json, const std::string& place) {
  PublishedSettings settings;
  const auto take = [&](const char* setting, const Json& from, const char* key) {
    const auto found = from.find(key);
    if (found == from.end() || found->is_null()) return;
    if (!found->is_number()) fail("{}: expected a number for '{}'", place, key);
    settings.emplace_back(setting, found->get<double>());
  };
  if (model.kind != "llama") {
    take("heads", json, "n_head");
    return settings;
  }
  take("heads", json, "num_attention_heads");
  take("kv_heads", json, "num_key_value_heads");
  take("norm_eps", json, "rms_norm_eps");
  take("rope_base", json, "rope_theta");
  Json rope;
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (json.contains(key) && !json[key].is_null()) rope = json[key];
  if (rope.is_null()) rope = Json::object();
  if (!rope.is_object()) fail("{}: expected a JSON object for the scaling of rotary positions", place);
  take("rope_base", rope, "rope_theta");
  const Json type = rope.value("rope_type", rope.value("type", Json("default")));
  if (type == "llama3") {
    take("rope_factor", rope, "factor");
    take("rope_low_freq_factor", rope, "low_freq_factor");
    take("rope_high_freq_factor", rope, "high_freq_factor");
    take("rope_original_context", rope, "original_max_position_embeddings");
  } else if (type == "default") {
    settings.emplace_back("rope_factor", 1.0);
  } else {
    fail("{}: rotary positions of type {} are not in this engine; it has those of \"default\" and \"llama3\"", place,
         type.dump());
  }
  return settings;
}

double as_number(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

}  // namespace

void check_published_settings(const Spec& model, const fs::path& weights) {
  if (model.kind != "llama" && !model.kind.starts_with("gpt")) return;  // it says nothing about other kinds
  const fs::path path = (fs::is_directory(weights) ? weights : weights.parent_path()) / "config.json";
  if (!fs::exists(path)) return;
  const Json json = read_json_object(path);
  std::vector<std::string> wrong;
  for (const auto& [name, number] : published_settings(model, json, path.string())) {
    const auto set = model.settings.find(name);
    if (set == model.settings.end() ? name == "rope_factor" && number == 1 : as_number(set->second.value) == number)
      continue;
    wrong.push_back(
        fmt::format("model.{} = {} instead of {}", name, number,
                    set == model.settings.end() ? "none" : fmt::format("{}", as_number(set->second.value))));
  }
  check(wrong.empty(), "{} is of a network with {}; set what differs in [model]", path.string(),
        fmt::join(wrong, ", "));
}

StateDict read_published(const fs::path& given) {
  const fs::path path = file_of(given);
  StateDict weights = path.extension() == ".json" ? read_index(path) : read_safetensors(path).tensors;
  for (auto& [name, tensor] : weights)
    if (is_floating(tensor.dtype())) tensor = tensor.to(DType::f32);
  return weights;
}

StateDict published(const Spec& model, const StateDict& network) {
  StateDict result;
  for (const auto& [name, tensor] : network) result.emplace(name, to_published(model, name, tensor));
  return result;
}

void load_published(const Spec& model, Network& network, const StateDict& weights,
                    std::span<const std::string> except) {
  const StateDict own = network.parameters.state();
  std::vector<std::string> missing, misshapen, left_over;
  std::set<std::string> used;
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const std::string& pattern : except) {
    if (std::ranges::any_of(own, [&](const auto& entry) { return name_matches(pattern, entry.first); })) continue;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : own) names.push_back(name);
    const std::string nearest = nearest_spelling(pattern, names);
    check(false, "[weights] no tensor of the network is called '{}'{}", pattern,
          nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
  for (const auto& entry : own) {  // clang 14 captures no structured bindings
    const std::string& name = entry.first;
    const Tensor& tensor = entry.second;
    auto found = weights.end();
    for (const char* prefix : {"", "transformer.", "model.", "module."}) {
      found = weights.find(prefix + name);
      if (found != weights.end()) break;
    }
    if (found != weights.end()) used.insert(found->first);
    if (std::ranges::any_of(except, [&](const std::string& pattern) { return name_matches(pattern, name); })) continue;
    const Tensor there = to_published(model, name, tensor);
    if (found == weights.end()) {
      missing.push_back(fmt::format("'{}' {}{}", name, to_string(there.shape()),
                                    name == "lm_head.weight" ? " (model.tied_head = true needs none)" : ""));
    } else if (found->second.shape() != there.shape() || found->second.dtype() != there.dtype()) {
      misshapen.push_back(fmt::format("'{}' {} {} instead of {} {}", name, name_of(found->second.dtype()),
                                      to_string(found->second.shape()), name_of(there.dtype()),
                                      to_string(there.shape())));
    } else {
      copies.emplace_back(from_published(model, name, found->second), tensor);
    }
  }
  for (const auto& [name, tensor] : weights) {
    if (used.contains(name) || is_no_weight(name, tensor)) continue;
    const bool head = name.ends_with("lm_head.weight") && !own.contains("lm_head.weight");
    if (head && repeats_embedding(weights, tensor)) continue;
    left_over.push_back("'" + name + "'" + (head ? " (model.tied_head = false has a place for it)" : ""));
  }
  std::string complaint;
  if (!missing.empty()) complaint += fmt::format("\n  missing: {}", listed(missing));
  if (!misshapen.empty()) complaint += fmt::format("\n  of another shape or type: {}", listed(misshapen));
  if (!left_over.empty()) complaint += fmt::format("\n  not of this network: {}", listed(left_over));
  if (!complaint.empty())
    fail("[weights] these are not the weights of a network of kind '{}' with these settings:{}", model.kind, complaint);
  // Writes only after everything is known to fit.
  for (auto& [from, to] : copies) copy(from.to_contiguous(), to);
}

}  // namespace elinvar
