#include "tools/cli/program_beside.h"

namespace elinvar {

std::filesystem::path program_beside(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace elinvar
