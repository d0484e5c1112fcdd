#pragma once
// The paths of this program and of those next to it: programs of the project are in one folder and find each other
// there, wherever it was taken.
#include <filesystem>
#include <string>

namespace elinvar {

// Returns the path of a program, as "train", in the folder of the running program. It may not exist.
std::filesystem::path program_beside(const std::string& name);

// What this program was started as, without folders.
std::string program_name();

}  // namespace elinvar
