#pragma once
// Functions that the writer and the reader of config.json share (models/published_config.h).
#include <map>
#include <string>
#include <vector>

#include "tensor/base/spec.h"
#include "tensor/state.h"

namespace elinvar {

using NamedValues = std::map<std::string, Value>;

// Returns "gpt", "llama", "bert", "electra", "t5", "resnet", "vgg", "torchvision" for other kinds that torchvision has
// under the same name, or "" for a kind without a class.
std::string family_of(const Spec& model);
bool is_of_text(const std::string& family);

// Returns the settings with which a network of the family "torchvision" is torchvision's, but for those that matter in
// training only: the kind's defaults for images of 224 x 224 pixels.
NamedValues torchvision_settings(const Spec& model);

// Returns the stages of a ResNet, which a kind such as "resnet50" does not list: "blocks", "widths" and "bottleneck".
NamedValues form_of_resnet(const StateDict& network);

// Returns the name of the last layer's weight (classes, ..) of a classifier, or "" for other networks.
std::string weight_of_classes(const StateDict& network);

// Values as messages show them, and whether two are equal; 1 and 1.0 are.
std::string shown(const Value& value);
bool same_value(const Value& a, const Value& b);

// Returns all settings of a network: those of `model`, whose defaults are filled in, those that its kind implies, and
// the defaults of settings that `model` omits because older runs lack them.
NamedValues own_settings(const Spec& model, const StateDict& network);

}  // namespace elinvar
