#pragma once
// Tables of a configuration as a Spec (tensor/base/spec.h) and back: [model], and what [data] and [optimizer] say of
// kinds that a program has registered. Which keys a kind knows is checked where it is built.
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/spec.h"
#include "tools/config/table.h"

namespace elinvar {

// The [model] table. Without `kind` but with a list "layer" it has kind "layers".
Spec read_model_spec(const TomlSource& source);
std::string model_spec_to_toml(const Spec& spec);

// The table `table`, without the keys that were read otherwise.
Spec read_spec(const TomlSource& source, const std::string& table, const std::vector<std::string>& without);
// Its settings and lists as keys and their values in TOML.
std::vector<std::pair<std::string, std::string>> entries_of(const Spec& spec);

}  // namespace elinvar
