#pragma once
// The views of a pool: tables for people, JSON for programs and the page. All data come from the store, whether a
// daemon runs or not.
#include <nlohmann/json.hpp>
#include <string>

#include "tools/pool/store/store.h"

namespace elinvar::pool {

// Returns {"time","daemon","jobs":[...],"slots":[...],"workers":[...],"progress":[...],"log":[...]} for the last
// `window` seconds. "daemon": whether one runs.
nlohmann::ordered_json pool_view(const Store& store, double now, double window);

// Returns one job with its workers, its measurements and its last log lines.
nlohmann::ordered_json job_view(const Store& store, const JobRecord& job, double now);

std::string jobs_table(const nlohmann::ordered_json& view);
std::string job_text(const nlohmann::ordered_json& view);
std::string log_text(const nlohmann::ordered_json& lines);
nlohmann::ordered_json log_view(const std::vector<LogLine>& lines);

}  // namespace elinvar::pool
