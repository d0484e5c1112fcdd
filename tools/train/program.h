#pragma once
// Which of several programs one is.
#include <filesystem>
#include <string>

namespace elinvar {

// Of several that were built in the same place, one after another: of its file, 32 hexadecimal digits.
std::string digest_of_program(const std::filesystem::path& program);

// Of this program, what the linker has made from all that it put into it (the GNU build-id, hexadecimal): the same in
// every copy, stripped or installed. Without one the digest of its file.
std::string build_id();

}  // namespace elinvar
