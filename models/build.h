#pragma once
// Builds networks from descriptions. models/README.md lists the kinds and their settings.
#include <memory>
#include <string>
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

// Builds the network that `spec` describes; its initial values are a function of `seed` and the parameters' names.
// Throws UsageError, which names the place, the key and the nearest valid spelling, if a kind or a setting is unknown,
// of the wrong type, or does not fit the input. `resolved`, if not null, receives `spec` with all defaults filled in.
std::unique_ptr<Network> build(const Spec& spec, const InputInfo& input, uint64_t seed, Spec* resolved = nullptr);

std::vector<std::string> model_kinds();  // built in and registered (models/kinds.h)

}  // namespace elinvar
