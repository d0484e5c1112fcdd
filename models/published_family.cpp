#include "models/published_family.h"

namespace elinvar {

std::string family_of(const Spec& model) {
  for (const char* family : {"gpt", "llama", "resnet", "vgg"})
    if (model.kind.starts_with(family)) return family;
  return "";
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

NamedValues own_settings(const Spec& model, const StateDict& network) {
  // A description has these settings only if the configuration does.
  NamedValues settings = {{"rope_factor", 1.0}, {"qkv_bias", false}, {"batch_norm", true}};
  for (const auto& [name, setting] : model.settings) settings[name] = setting.value;
  if (family_of(model) == "resnet")
    for (const auto& [name, value] : form_of_resnet(network)) settings[name] = value;
  return settings;
}

}  // namespace elinvar
