#pragma once
// Times in the format of a run's files: "2026-05-04T10:11:12.345Z".
#include <optional>
#include <string>

namespace elinvar {

std::string utc_now(double ago = 0);  // the time `ago` seconds before now

// Returns seconds since 1970; null if the text does not begin with a date and a time. A fraction may be missing.
std::optional<double> seconds_of_utc(const std::string& text);

}  // namespace elinvar
