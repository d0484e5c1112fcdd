#pragma once
// The profiles that the workers of a run leave (tools/training/profiler.h), as one trace and as a table.
//
//   RUN/profile/worker-N.json   of worker N: {"otherData": {"workers": [what it computes with]}, "traceEvents": [..]}
//   RUN/profile.json            of all of them, on one axis of time: a process each
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace elinvar {

// Where worker `worker` leaves its own; a folder that is missing is made.
std::filesystem::path profile_path(const std::filesystem::path& run_directory, int worker);
void write_profile(const std::filesystem::path& path, const nlohmann::ordered_json& trace);  // an event a line
void forget_profiles(const std::filesystem::path& run_directory);

// Those of all workers in one; null if there are none. Failure, naming the file, for what is no profile.
nlohmann::ordered_json joined_profile(const std::filesystem::path& run_directory);
// Where a step's time goes: by activity, by op, and by thread. Time in an activity is without that of others within it.
std::string profile_table(const nlohmann::ordered_json& trace);
std::string where_to_open(const std::filesystem::path& trace);  // for a person

}  // namespace elinvar
