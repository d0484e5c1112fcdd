#pragma once
// What a pool shows of itself: to people as tables, to programs and to the page as JSON. All of it is read from the
// store, whether a daemon runs or not.
#include <nlohmann/json.hpp>
#include <string>

#include "tools/pool/store/store.h"

namespace elinvar::pool {

// {"time","daemon","jobs":[...],"slots":[...],"workers":[...],"progress":[...],"log":[...]}: what was there within the
// last `window` seconds. "daemon": whether one runs.
nlohmann::ordered_json pool_view(const Store& store, double now, double window);

// One job, with its workers, what was measured of it, and its last lines of the log.
nlohmann::ordered_json job_view(const Store& store, const JobRecord& job, double now);

std::string jobs_table(const nlohmann::ordered_json& view);
std::string job_text(const nlohmann::ordered_json& view);
std::string log_text(const nlohmann::ordered_json& lines);
nlohmann::ordered_json log_view(const std::vector<LogLine>& lines);

}  // namespace elinvar::pool
