#pragma once
// The profiles that a run's workers write (tools/training/profiler.h), as one trace and as a table.
//
//   RUN/profile/worker-N.json   of worker N: {"otherData": {"workers": [its device]}, "traceEvents": [..]}
//   RUN/profile.json            of all workers, on one axis of time, with one process for each worker
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace elinvar {

// Returns the path of a worker's profile. Creates the folder if it is missing.
std::filesystem::path profile_path(const std::filesystem::path& run_directory, int worker);
void write_profile(const std::filesystem::path& path, const nlohmann::ordered_json& trace);  // one event on each line
void forget_profiles(const std::filesystem::path& run_directory);

// Joins the profiles of all workers; null if there are none. Throws Failure, which names the file, if a file is not a
// profile.
nlohmann::ordered_json joined_profile(const std::filesystem::path& run_directory);
// Returns a table of a step's time by activity, by op and by thread. The time of an activity excludes activities nested
// in it.
std::string profile_table(const nlohmann::ordered_json& trace);
std::string where_to_open(const std::filesystem::path& trace);  // instructions for a person

}  // namespace elinvar
