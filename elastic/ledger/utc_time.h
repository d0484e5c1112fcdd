#pragma once
// Times as the files of a run have them: "2026-05-04T10:11:12.345Z".
#include <optional>
#include <string>

namespace elinvar {

std::string utc_now(double ago = 0);  // so many seconds before now

// Seconds since 1970; nothing if the text does not begin with a date and a time. A fraction may be missing.
std::optional<double> seconds_of_utc(const std::string& text);

}  // namespace elinvar
