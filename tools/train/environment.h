#pragma once
// With what a run was made: environment.json in its directory. For people; no bit of the run depends on it.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tensor/stream.h"

namespace elinvar {

std::string cpu_model();
nlohmann::ordered_json describe_environment(const std::vector<std::string>& command_line, Device device);

}  // namespace elinvar
