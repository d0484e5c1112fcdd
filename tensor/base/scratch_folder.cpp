#include "tensor/base/scratch_folder.h"

#include <cstdlib>

#include "tensor/base/check.h"

namespace elinvar {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const std::string& name) {
  std::string path = (fs::temp_directory_path() / (name + "-XXXXXX")).string();
  if (!::mkdtemp(path.data())) fail("cannot make a temporary folder like '{}'", path);
  path_ = path;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace elinvar
