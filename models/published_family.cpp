#include "models/published_family.h"

#include <optional>

#include "models/build.h"

namespace elinvar {

std::string shown(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<T>) return fmt::format("{}", v);
        else if constexpr (std::is_same_v<T, std::string>) return fmt::format("\"{}\"", v);
        else return fmt::format("[{}]", fmt::join(v, ", "));
      },
      value);
}

bool same_value(const Value& a, const Value& b) {
  const auto number = [](const Value& value) -> std::optional<double> {
    if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&value)) return *real;
    return std::nullopt;
  };
  return number(a) && number(b) ? number(a) == number(b) : a == b;
}

std::string family_of(const Spec& model) {
  for (const char* family : {"gpt", "llama", "bert", "electra", "t5", "resnet", "vgg"})
    if (model.kind.starts_with(family)) return family;
  for (const char* kind : {"wide_resnet50_2", "wide_resnet101_2", "mobilenet_v2", "efficientnet_b", "shufflenet_v2_x",
                           "vit_b_", "vit_l_", "swin_"})
    if (model.kind.starts_with(kind)) return "torchvision";
  return "";
}

bool is_of_text(const std::string& family) {
  return family == "gpt" || family == "llama" || family == "bert" || family == "electra" || family == "t5";
}

NamedValues torchvision_settings(const Spec& model) {
  const OutlineScope no_values;
  Spec whole;
  build({.kind = model.kind}, {.sample = {224, 224, 3}, .classes = 1}, 0, &whole);
  for (const char* of_training : {"dropout", "stochastic_depth", "zero_init_residual"})
    whole.settings.erase(of_training);
  NamedValues settings;
  for (const auto& [name, setting] : whole.settings) settings[name] = setting.value;
  return settings;
}

NamedValues form_of_resnet(const StateDict& network) {
  std::vector<int64_t> blocks, widths;
  for (int64_t stage = 1; network.contains(fmt::format("layer{}.0.conv1.weight", stage)); ++stage) {
    widths.push_back(network.at(fmt::format("layer{}.0.conv1.weight", stage)).dim(0));
    blocks.push_back(1);
    while (network.contains(fmt::format("layer{}.{}.conv1.weight", stage, blocks.back()))) ++blocks.back();
  }
  return {{"blocks", blocks}, {"widths", widths}, {"bottleneck", network.contains("layer1.0.conv3.weight")}};
}

std::string weight_of_classes(const StateDict& network) {
  for (const char* head : {"classifier.6.weight", "classifier.1.weight", "classifier.weight", "heads.head.weight",
                           "head.weight", "fc.weight"})
    if (network.contains(head)) return head;
  return "";
}

NamedValues own_settings(const Spec& model, const StateDict& network) {
  // A description has these settings only if the configuration does.
  NamedValues settings = {{"rope_factor", 1.0}, {"qkv_bias", false}, {"experts", int64_t{0}}, {"batch_norm", true}};
  for (const auto& [name, setting] : model.settings) settings[name] = setting.value;
  if (family_of(model) == "resnet")
    for (const auto& [name, value] : form_of_resnet(network)) settings[name] = value;
  return settings;
}

}  // namespace elinvar
