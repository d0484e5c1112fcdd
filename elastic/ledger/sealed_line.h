#pragma once
// Lines with a checksum: JSON objects whose last entry is a checksum of the text before it.
//
//   {"step":12,"loss":"3fe0000000000000","sum":"5b1c09f3"}
//
// The checksum is the first 8 hexadecimal digits of the XXH3-128 of the text before `,"sum"`. It distinguishes a line
// that a disk or a person has changed from a line with other facts.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace elinvar {

std::string sealed(std::string_view object);     // `{...}` with the checksum, on one line
nlohmann::json unsealed(std::string_view line);  // throws Failure that says what is wrong with the line
// The same check without parsing the rest: "" if the checksum is right.
std::string fault_of_seal(std::string_view line);

}  // namespace elinvar
