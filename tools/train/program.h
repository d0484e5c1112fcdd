#pragma once
// Which of several programs one is that were built in the same place, one after another.
#include <filesystem>
#include <string>

namespace elinvar {

std::string digest_of_program(const std::filesystem::path& program);  // of its file, 32 hexadecimal digits

}  // namespace elinvar
