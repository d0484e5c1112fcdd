#pragma once
// Functions that the writer and the reader of config.json share (models/published_config.h).
#include <map>
#include <string>
#include <vector>

#include "tensor/base/spec.h"
#include "tensor/state.h"

namespace elinvar {

using NamedValues = std::map<std::string, Value>;

// Returns "gpt", "llama", "resnet" or "vgg", or "" for any other kind.
std::string family_of(const Spec& model);

// Returns the stages of a ResNet, which a kind such as "resnet50" does not list: "blocks", "widths" and "bottleneck".
NamedValues form_of_resnet(const StateDict& network);

// Returns all settings of a network: those of `model`, whose defaults are filled in, those that its kind implies, and
// the defaults of settings that `model` omits because older runs lack them.
NamedValues own_settings(const Spec& model, const StateDict& network);

}  // namespace elinvar
