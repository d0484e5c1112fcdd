#pragma once
// What the writer and the reader of a config.json (models/published_config.h) share.
#include <map>
#include <string>
#include <vector>

#include "tensor/base/spec.h"
#include "tensor/state.h"

namespace elinvar {

using NamedValues = std::map<std::string, Value>;

// Returns "gpt", "llama", "resnet" or "vgg", or "" for a network of another kind.
std::string family_of(const Spec& model);

// Returns the stages of a ResNet, which a kind such as "resnet50" does not list: "blocks", "widths" and "bottleneck".
NamedValues form_of_resnet(const StateDict& network);

// Returns all settings of a network. `model` has its defaults filled in; what it omits because older runs have no such
// setting, and what its kind implies, is added.
NamedValues own_settings(const Spec& model, const StateDict& network);

}  // namespace elinvar
