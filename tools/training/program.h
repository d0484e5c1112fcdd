#pragma once
// The identity of a program, to tell builds apart.
#include <filesystem>
#include <string>

namespace elinvar {

// The digest of a program file, 32 hexadecimal digits; tells apart builds that replaced each other in one place.
std::string digest_of_program(const std::filesystem::path& program);

// The identity of this program: the GNU build-id in hexadecimal, which the linker computes from the contents and which
// stripping and installing keep; or, if there is none, the digest of its file.
std::string build_id();

}  // namespace elinvar
