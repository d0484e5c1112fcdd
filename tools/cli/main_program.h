#pragma once
// The part of main() that all tools share: standard streams, limits, exceptions and exit codes.
#include <functional>

namespace elinvar {

// The exit code of `work`; 2 if it throws UsageError and 3 if it throws anything else, after a line on standard error
// that begins with the program's name; 3 if what it printed could not be written.
int main_program(const char* name, const std::function<int()>& work);

}  // namespace elinvar
