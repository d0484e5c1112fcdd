#pragma once
// Numbered records in a directory, <number>.json, of which at most one can be made for each number, whoever tries: what
// several processes agree by, without talking to each other.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace elinvar {

// Returns once the record would survive a power cut; false, and nothing has changed, if there is one of this number.
bool create_record(const std::filesystem::path& directory, int64_t number, const nlohmann::json& record);
// The largest number in a name <number><extension>; 0: none.
int64_t newest_record(const std::filesystem::path& directory, std::string_view extension = ".json");
nlohmann::json read_record(const std::filesystem::path& directory, int64_t number);  // throws Failure, as the next does

// Throws a Failure that names a damaged or missing record and says how to go on without it.
[[noreturn]] void refuse_record(const std::filesystem::path& directory, int64_t number, const std::string& what_it_is);

}  // namespace elinvar
