#pragma once
// This program, and those beside it: programs of the project lie in one folder and find each other there, wherever it
// was taken.
#include <filesystem>
#include <string>

namespace elinvar {

// "train", of the folder of the program that runs. Whether there is one is for whoever starts it to find.
std::filesystem::path program_beside(const std::string& name);

// What this program was started as, without folders.
std::string program_name();

}  // namespace elinvar
