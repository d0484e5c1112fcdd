#pragma once
// Converts tables of a configuration to a Spec (tensor/base/spec.h) and back: [model], and the keys in [data] and
// [optimizer] of kinds that a program has registered. Keys are checked where the kind is built.
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/spec.h"
#include "tools/config/table.h"

namespace elinvar {

// The [model] table. Without `kind` but with a list "layer" it has kind "layers".
Spec read_model_spec(const TomlSource& source);
std::string model_spec_to_toml(const Spec& spec);

// Reads the table `table`, except the keys `without`.
Spec read_spec(const TomlSource& source, const std::string& table, const std::vector<std::string>& without);
// Returns its settings and lists as keys and TOML values.
std::vector<std::pair<std::string, std::string>> entries_of(const Spec& spec);

}  // namespace elinvar
