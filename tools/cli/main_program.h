#pragma once
// The part of main() that all tools share: standard streams, limits, exceptions and exit codes.
#include <functional>

namespace elinvar {

// Runs `work` and returns its exit code. Returns 2 if it throws UsageError and 3 for other exceptions, after a line on
// stderr that begins with the program's name; 3 if its output could not be written.
int main_program(const char* name, const std::function<int()>& work);

}  // namespace elinvar
