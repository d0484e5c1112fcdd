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

// Returns an endpoint for a process of this host to listen at: any free port of the address from which packets to the
// job leave, so that the job can connect to it.
std::string listen_towards(const std::string& job_endpoint);

// Returns the content of result.json if the run is over. Ignores the result of an earlier part of a resumed run, which
// stays until the run makes progress.
std::optional<nlohmann::json> result_of(const std::filesystem::path& run_directory);

}  // namespace elinvar
