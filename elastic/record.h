#pragma once
// Numbered records in a directory, <number>.json, of which at most one can be made for each number, whoever tries: what
// several processes agree by, without talking to each other.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace elinvar {

// Returns once the record would survive a power cut; false, and nothing has changed, if there is one of this number.
bool create_record(const std::filesystem::path& directory, int64_t number, const nlohmann::json& record);
int64_t newest_record(const std::filesystem::path& directory);                       // 0: none
nlohmann::json read_record(const std::filesystem::path& directory, int64_t number);  // throws Failure

}  // namespace elinvar
