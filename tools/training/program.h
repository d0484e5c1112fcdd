#pragma once
// The identity of a program, which distinguishes builds.
#include <filesystem>
#include <string>

namespace elinvar {

// Returns the digest of a program file, 32 hexadecimal digits. It distinguishes builds that replaced each other at one
// path.
std::string digest_of_program(const std::filesystem::path& program);

// Returns the identity of this program: the GNU build-id in hexadecimal, which the linker computes from the contents
// and which stripping and installing keep; without one, the digest of the program file.
std::string build_id();

}  // namespace elinvar
