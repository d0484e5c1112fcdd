#pragma once
// The environment of a run: environment.json in its directory. It is for people, because no bit of a run depends on it.
// The exception is run.numerics = "fast": the bits of such a run belong to one kind of GPU.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/stream.h"

namespace elinvar {

std::string cpu_model();
// With `fast`, the description includes what computes products (tensor/precision.h).
nlohmann::ordered_json describe_environment(const std::vector<std::string>& command_line, Device device, bool fast);

// Checks those fields of a newcomer's environment that a job reads. Throws UsageError.
void check_environment(const nlohmann::json& environment);

// Returns the build (tools/training/program.h) in a worker's environment, and a name of it for people.
std::string build_of(const nlohmann::json& environment);
std::string name_of_build(const nlohmann::json& environment);

// Returns what determines the bits of a fast run in a worker's environment: the GPU's model and what computes products
// on it.
std::string kind_of_gpu(const nlohmann::json& environment);

}  // namespace elinvar
