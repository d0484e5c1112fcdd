#include "tools/cli/program_beside.h"

#include <cerrno>

namespace elinvar {

std::filesystem::path program_beside(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

std::string program_name() { return program_invocation_short_name; }

}  // namespace elinvar
