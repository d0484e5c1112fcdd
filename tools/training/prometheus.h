#pragma once
// A job's status in the text format of Prometheus (prometheus.io/docs/instrumenting/exposition_formats, 0.0.4). Names
// follow its conventions: a prefix, base units, and `_total` for counters, which start with the coordinator's process.
// The page is served as /metrics on the port that `run --metrics-port` names.
#include <nlohmann/json.hpp>
#include <string>

namespace elinvar {

// `status` is the result of `ctl status`, or an object without "step" while the job is starting.
std::string prometheus_text(const nlohmann::json& status);

}  // namespace elinvar
