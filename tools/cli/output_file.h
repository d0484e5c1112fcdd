#pragma once
// A file that a person names for the output of a command. It may also be a terminal, a pipe or /dev/stdout.
#include <filesystem>
#include <string_view>

namespace elinvar {

// Throws Failure if write_output() could not write to `path`. Call it before a long computation of the text.
void check_output(const std::filesystem::path& path);

// Replaces a file atomically (replace_file), or writes the text to a terminal, a pipe or a descriptor of this process.
void write_output(const std::filesystem::path& path, std::string_view text);

}  // namespace elinvar
