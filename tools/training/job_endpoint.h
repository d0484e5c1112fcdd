#pragma once
// Where a job's coordinator is, and whether the job is over, as its run directory says.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace elinvar {

// Returns the endpoint of `job`, which is an endpoint already or a run directory that records it. Throws if the
// directory has no running job.
std::string job_endpoint(const std::string& job);

// Returns the endpoint at which a process of this host listens to be reached from a job's endpoint: a free port.
std::string listen_towards(const std::string& job_endpoint);

// Returns the result of the run, if it is over: a run that has been resumed is not, though the result of an earlier
// part stays until it goes on.
std::optional<nlohmann::json> result_of(const std::filesystem::path& run_directory);

}  // namespace elinvar
