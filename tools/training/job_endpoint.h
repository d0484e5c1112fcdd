#pragma once
// Where the coordinator of a job listens.
#include <string>

namespace elinvar {

// `job` is its endpoint, or its run directory, which says it. Throws where that has no running job.
std::string job_endpoint(const std::string& job);

}  // namespace elinvar
