#pragma once
// The [model] table as a ModelSpec and back. Which keys a model knows is checked where it is built.
#include <string>

#include "models/spec.h"
#include "tools/config/table.h"

namespace elinvar {

ModelSpec read_model_spec(const TomlSource& source);
std::string model_spec_to_toml(const ModelSpec& spec);

}  // namespace elinvar
