#pragma once
// Where tests find the programs of the project: beside the one that runs, wherever they were taken.
#include <filesystem>
#include <string>

namespace elinvar::test {

inline std::string program_path(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

}  // namespace elinvar::test
