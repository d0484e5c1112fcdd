#pragma once
// Paths of this program and its neighbours: the project's programs are in one folder, which may be moved, and find each
// other there.
#include <filesystem>
#include <string>

namespace elinvar {

// Returns the path of a program, for example "train", in the folder of the running program. It may not exist.
std::filesystem::path program_beside(const std::string& name);

// Returns the name under which this program was started, without folders.
std::string program_name();

}  // namespace elinvar
