#pragma once
// A job's status in the text format of Prometheus (prometheus.io/docs/instrumenting/exposition_formats, 0.0.4). Names
// follow its conventions: a prefix, base units, `_total` for what only grows; counters begin with the coordinator's
// process. The page is /metrics of the port that `run --metrics-port` names.
#include <nlohmann/json.hpp>
#include <string>

namespace elinvar {

// `status` is that of `ctl status`, or an object without "step" while the job is starting.
std::string prometheus_text(const nlohmann::json& status);

}  // namespace elinvar
