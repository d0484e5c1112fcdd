#pragma once
// Texts that commands read from standard input.
#include <string>

namespace elinvar {

// Removes the newline at the end of a text, which most programs add.
std::string without_last_newline(std::string text);

// Returns standard input without the newline at its end. Throws UsageError, with `expected`, if it is a terminal.
std::string text_on_stdin(const char* expected);

}  // namespace elinvar
