#include "models/published.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "models/published_experts.h"
#include "models/relative_position.h"
#include "nn/parameters.h"
#include "tensor/base/check.h"
#include "tensor/base/spelling.h"
#include "tensor/state.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

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

// Converts a name in torchvision's ResNet to the name in Hugging Face's ResNetForImageClassification.
std::string name_in_resnet_class(const std::string& name) {
  static const std::regex stem("(conv1|bn1)\\.(.*)"), head("fc\\.(.*)");
  static const std::regex block("layer([0-9]+)\\.([0-9]+)\\.(conv|bn|downsample\\.)([0-9]+)\\.(.*)");
  const auto kind_of = [](bool convolution) { return convolution ? "convolution" : "normalization"; };
  std::smatch part;
  if (std::regex_match(name, part, head)) return "classifier.1." + part[1].str();
  if (std::regex_match(name, part, stem))
    return fmt::format("resnet.embedder.embedder.{}.{}", kind_of(part[1] == "conv1"), part[2].str());
  if (!std::regex_match(name, part, block)) return name;
  const std::string before =
      fmt::format("resnet.encoder.stages.{}.layers.{}.", std::stol(part[1].str()) - 1, part[2].str());
  if (part[3] == "downsample.") return fmt::format("{}shortcut.{}.{}", before, kind_of(part[4] == "0"), part[5].str());
  return fmt::format("{}layer.{}.{}.{}", before, std::stol(part[4].str()) - 1, kind_of(part[3] == "conv"),
                     part[5].str());
}

// Returns the prefix that this engine puts before the names of ELECTRA's class in a folder.
std::string electra_prefix(const std::string& folder) { return folder.empty() ? "discriminator." : folder + "."; }

bool is_own_of_electra(std::string_view name) {
  return name.starts_with("discriminator.") || name.starts_with("generator.");
}

std::string name_in_class(const Spec& model, const std::string& name) {
  if (model.kind.starts_with("resnet")) return name_in_resnet_class(name);
  if (model.kind.starts_with("gpt") && name != "lm_head.weight") return "transformer." + name;
  return name;
}

// Norms were once called so.
std::string name_in_old_bert(const std::string& name) {
  for (const auto& [now, before] :
       {std::pair("LayerNorm.weight", "LayerNorm.gamma"), {"LayerNorm.bias", "LayerNorm.beta"}})
    if (name.ends_with(now)) return name.substr(0, name.size() - std::string_view(now).size()) + before;
  return name;
}

// Adds zero biases to layers that have a bias in the published network but not in this one.
void add_zero_biases(const Spec& model, const StateDict& network, StateDict& result) {
  const bool gpt = model.kind.starts_with("gpt"), vgg = model.kind.starts_with("vgg");
  for (const auto& [name, tensor] : network) {
    if (!name.ends_with(".weight") || !(vgg || (gpt && name.starts_with("h.")) || name == "ln_f.weight")) continue;
    const std::string bias = name.substr(0, name.size() - std::string_view("weight").size()) + "bias";
    if (!network.contains(bias)) result.emplace(bias, Tensor::zeros({tensor.dim(0)}));
  }
}

// Whether a tensor is one that other programs save in addition: counters of batch norms, attention masks, rotary
// tables, relative positions.
bool is_no_weight(std::string_view name, const Tensor& tensor) {
  return name.ends_with("num_batches_tracked") || name.ends_with("attn.masked_bias") ||
         (name.ends_with("attn.bias") && tensor.ndim() == 4) || name.ends_with("rotary_emb.inv_freq") ||
         name.ends_with("attn.relative_position_index") || name.ends_with("embeddings.position_ids") ||
         name.ends_with("EncDecAttention.relative_attention_bias.weight");
}

// Tensors that are one in the classes of a kind, under two names.
struct Repeated {
  const char *kind, *name, *original;
};
constexpr Repeated kRepeated[] = {
    {"gpt", "lm_head.weight", "wte.weight"},
    {"llama", "lm_head.weight", "model.embed_tokens.weight"},
    {"bert", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {"bert", "cls.predictions.decoder.bias", "cls.predictions.bias"},
    {"electra", "generator.generator_lm_head.weight", "discriminator.electra.embeddings.word_embeddings.weight"},
    {"electra", "generator.electra.embeddings.word_embeddings.weight",
     "discriminator.electra.embeddings.word_embeddings.weight"},
    {"electra", "generator.electra.embeddings.position_embeddings.weight",
     "discriminator.electra.embeddings.position_embeddings.weight"},
    {"electra", "generator.electra.embeddings.token_type_embeddings.weight",
     "discriminator.electra.embeddings.token_type_embeddings.weight"},
    {"electra", "generator.electra.embeddings.LayerNorm.weight", "discriminator.electra.embeddings.LayerNorm.weight"},
    {"electra", "generator.electra.embeddings.LayerNorm.bias", "discriminator.electra.embeddings.LayerNorm.bias"},
    {"t5", "lm_head.weight", "shared.weight"},
    {"t5", "encoder.embed_tokens.weight", "shared.weight"},
    {"t5", "decoder.embed_tokens.weight", "shared.weight"},
};

// Returns the name of the tensor that this one repeats in classes of a kind, or "".
std::string repeated_by(const Spec& model, const std::string& name) {
  const auto found = std::ranges::find_if(kRepeated, [&](const Repeated& r) {
    return model.kind.starts_with(r.kind) && (name == r.name || name.ends_with("." + std::string(r.name)));
  });
  return found == std::end(kRepeated) ? "" : found->original;
}

// Whether a published tensor that the network does not have equals the one that it repeats.
bool repeats_another(const Spec& model, const StateDict& weights, const std::string& name, const Tensor& copy) {
  const std::string original = repeated_by(model, name);
  return !original.empty() && std::ranges::any_of(weights, [&](const auto& entry) {
    const auto& [other, tensor] = entry;
    return other.ends_with(original) && tensor.shape() == copy.shape() && tensor.dtype() == copy.dtype() &&
           digest(tensor) == digest(copy);
  });
}

// Whether a tensor belongs to a head that a BERT has in other classes.
bool is_of_another_head(const Spec& model, const StateDict& network, const std::string& name) {
  if (!model.kind.starts_with("bert")) return false;
  const bool predicts_tokens = network.contains("cls.predictions.bias");
  return name.starts_with("cls.seq_relationship.") || name.starts_with(predicts_tokens ? "bert.pooler." : "cls.");
}

bool all_zeros(const Tensor& tensor) {
  if (tensor.dtype() != DType::f32) return false;
  const Tensor values = tensor.to_contiguous();
  return std::ranges::all_of(values.span<float>(), [](float value) { return value == 0; });
}

// Returns whether the name is a bias whose layer has its weight in `used`.
bool is_bias_of(const std::set<std::string>& used, const std::string& name) {
  return name.ends_with(".bias") &&
         used.contains(name.substr(0, name.size() - std::string_view("bias").size()) + "weight");
}

// Returns the setting that determines whether a parameter exists, or its shape, as a hint for error messages.
const char* hint_of(std::string_view name) {
  if (name == "lm_head.weight") return " (model.tied_head = true needs none)";
  if (name == "wte.weight" || name == "model.embed_tokens.weight") return " (a row for each token of the data)";
  if (name.ends_with("embeddings.word_embeddings.weight"))
    return " (a row for each symbol of the data, of which labelled texts and masked tokens have one more)";
  if (name == "wpe.weight") return " (model.context rows)";
  if (name.find(".experts.w") != std::string_view::npos) return " (the first number is that of model.experts)";
  return "";
}

// Returns the reason why a tensor has no place in a network, as far as its name tells.
std::string hint_of_left_over(const Spec& model, const std::string& name) {
  const std::string original = repeated_by(model, name);
  if (original.empty()) return "";
  if (name == "lm_head.weight" || name.ends_with(".lm_head.weight"))
    return " (model.tied_head = false has a place for it)";
  return " (differs from '" + original + "', which is the same tensor here)";
}

// Returns what is missing of an ELECTRA, whose weights come from two folders, as a line of an error message.
std::string missing_networks(const Spec& model, const StateDict& weights) {
  const auto has = [&](const char* prefix) {
    return std::ranges::any_of(weights, [&](const auto& tensor) { return tensor.first.starts_with(prefix); });
  };
  if (!model.kind.starts_with("electra") || (has("discriminator.") && has("generator."))) return "";
  if (has("discriminator."))
    return "\n  there is no folder generator with an ElectraForMaskedLM; --except 'generator.*' leaves that network "
           "new";
  return "\n  expected the folder of an ElectraForPreTraining, with that of an ElectraForMaskedLM in it, named "
         "generator";
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kMostNamed) text += fmt::format(" and {} more", names.size() - kMostNamed);
  return text;
}

}  // namespace

std::vector<std::string> published_folders(const Spec& model) {
  if (model.kind.starts_with("electra")) return {"", "generator"};
  return {""};
}

StateDict read_published(const Spec& model, const fs::path& path) {
  if (!model.kind.starts_with("electra") || !fs::is_directory(path)) return read_published(path);
  StateDict all;
  for (const std::string& folder : published_folders(model)) {
    if (!fs::is_directory(path / folder)) continue;
    StateDict part = read_published(path / folder);
    const bool own_names =
        std::ranges::any_of(part, [](const auto& tensor) { return is_own_of_electra(tensor.first); });
    if (own_names) return part;  // of `train export RUN FILE`, which has both networks
    for (auto& [name, tensor] : part) all.emplace(electra_prefix(folder) + name, tensor);
  }
  return all;
}

StateDict published(const Spec& model, const StateDict& network) {
  StateDict result;
  for (const auto& [name, tensor] : network) result.emplace(name, to_published(model, name, tensor));
  if (model.kind.starts_with("vgg")) add_zero_biases(model, network, result);
  return model.kind == "llama" ? with_separate_experts(std::move(result)) : result;
}

StateDict published_for_class(const Spec& model, const StateDict& network, const std::string& folder) {
  StateDict own = published(model, network), result;
  add_zero_biases(model, network, own);
  for (const Repeated& r : kRepeated) {
    const std::string_view name = r.name;
    if (!model.kind.starts_with(r.kind) || !own.contains(r.original)) continue;
    if (name.starts_with("cls.") && !own.contains("cls.predictions.bias")) continue;  // a BERT with another head
    own.emplace(r.name, own.at(r.original));
  }
  for (const auto& [name, tensor] : network)
    if (const size_t at = name.rfind("running_mean"); at != std::string::npos)
      own.emplace(name.substr(0, at) + "num_batches_tracked", Tensor::zeros({}, DType::i64));
  for (const auto& [name, tensor] : network) {
    const size_t at = name.rfind("relative_position_bias_table");
    if (at == std::string::npos) continue;
    const auto offsets = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tensor.dim(0)))));
    own.emplace(name.substr(0, at) + "relative_position_index", relative_positions((offsets + 1) / 2));
  }
  const std::string prefix = model.kind.starts_with("electra") ? electra_prefix(folder) : "";
  for (const auto& [name, tensor] : own)
    if (name.starts_with(prefix)) result.emplace(name_in_class(model, name.substr(prefix.size())), tensor);
  return result;
}

void load_published(const Spec& model, Network& network, const StateDict& weights,
                    std::span<const std::string> except) {
  const StateDict theirs = model.kind == "llama" ? with_joined_experts(weights) : weights;
  const StateDict own = network.parameters.whole_state();
  std::vector<std::string> missing, misshapen, left_over;
  std::set<std::string> used;
  StateDict loaded;
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
    auto found = theirs.end();
    for (const std::string& published_name : {name, "transformer." + name, "model." + name, "module." + name,
                                              name_in_class(model, name), name_in_old_bert(name)}) {
      found = theirs.find(published_name);
      if (found != theirs.end()) break;
    }
    if (found != theirs.end()) used.insert(found->first);
    if (std::ranges::any_of(except, [&](const std::string& pattern) { return name_matches(pattern, name); })) {
      loaded.emplace(name, tensor.clone());
      continue;
    }
    const Tensor there = to_published(model, name, tensor);
    if (found == theirs.end()) {
      missing.push_back(fmt::format("'{}' {}{}", name, to_string(there.shape()), hint_of(name)));
    } else if (found->second.shape() != there.shape() || found->second.dtype() != there.dtype()) {
      misshapen.push_back(fmt::format("'{}' {} {} instead of {} {}{}", name, name_of(found->second.dtype()),
                                      to_string(found->second.shape()), name_of(there.dtype()),
                                      to_string(there.shape()), name == "lm_head.weight" ? "" : hint_of(name)));
    } else {
      loaded.emplace(name, from_published(model, name, found->second).to_contiguous());
    }
  }
  for (const auto& [name, tensor] : theirs) {
    if (used.contains(name) || is_no_weight(name, tensor) || is_of_another_head(model, own, name)) continue;
    if (is_bias_of(used, name) && all_zeros(tensor)) continue;
    if (repeats_another(model, theirs, name, tensor)) continue;
    left_over.push_back("'" + name + "'" + hint_of_left_over(model, name));
  }
  std::string complaint;
  if (!missing.empty()) complaint += fmt::format("\n  missing: {}", listed(missing));
  if (!misshapen.empty()) complaint += fmt::format("\n  of another shape or type: {}", listed(misshapen));
  if (!left_over.empty()) complaint += fmt::format("\n  not of this network: {}", listed(left_over));
  if (!missing.empty()) complaint += missing_networks(model, theirs);
  if (!complaint.empty())
    fail("[weights] these are not the weights of a network of kind '{}' with these settings:{}", model.kind, complaint);
  network.parameters.load_whole(loaded);
}

}  // namespace elinvar
