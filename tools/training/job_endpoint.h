#pragma once
// The endpoint of a job's coordinator.
#include <string>

namespace elinvar {

// Returns the endpoint of `job`, which is an endpoint already or a run directory that records it. Throws if the
// directory has no running job.
std::string job_endpoint(const std::string& job);

}  // namespace elinvar
