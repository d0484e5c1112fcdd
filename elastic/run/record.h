#pragma once
// Numbered records in a directory, <number>.json. At most one process can create the record of each number: the records
// are how several processes agree without talking to each other.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace elinvar {

// Returns true once the record would survive a power cut. Returns false and changes nothing if the number has a record.
bool create_record(const std::filesystem::path& directory, int64_t number, const nlohmann::json& record);
// Returns the largest number in a name <number><extension>; 0: none.
int64_t newest_record(const std::filesystem::path& directory, std::string_view extension = ".json");
// Throws Failure, as does the next function.
nlohmann::json read_record(const std::filesystem::path& directory, int64_t number);

// Throws Failure that names a damaged or missing record and says how to continue without it.
[[noreturn]] void refuse_record(const std::filesystem::path& directory, int64_t number, const std::string& what_it_is);

}  // namespace elinvar
