#pragma once
// With what a run was made: environment.json in its directory. For people, as no bit of the run depends on it; but for
// runs with run.numerics = "fast", whose bits are those of one kind of GPU.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/stream.h"

namespace elinvar {

std::string cpu_model();
// `fast`: products are (tensor/precision.h), so that what computes them belongs to it.
nlohmann::ordered_json describe_environment(const std::vector<std::string>& command_line, Device device, bool fast);

// Checks what a stranger says of its environment, as far as a job reads it. Throws UsageError.
void check_environment(const nlohmann::json& environment);

// The build (tools/training/program.h) in a worker's environment; and a name of it for people.
std::string build_of(const nlohmann::json& environment);
std::string name_of_build(const nlohmann::json& environment);

// Whose bits a fast run has, by the environment of a worker: the model of its GPU and what computes products there.
std::string kind_of_gpu(const nlohmann::json& environment);

}  // namespace elinvar
