#include "tools/training/new_files.h"

#include "tensor/base/file.h"
#include "tensor/safetensors.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

fs::path aside(const fs::path& path) { return path.string() + ".new"; }

}  // namespace

NewFiles::~NewFiles() {
  std::error_code ignored;
  for (const fs::path& path : paths_) fs::remove(aside(path), ignored);
  if (!folder_.empty()) fs::remove(folder_, ignored);
}

void NewFiles::make_folder(const fs::path& folder) {
  if (fs::is_directory(folder)) return;
  make_directories(folder);
  folder_ = folder;
}

// Removes what a process that died has left under the temporary name, but never a folder with files in it.
fs::path NewFiles::begin(const fs::path& path) {
  std::error_code ignored;
  fs::remove(aside(path), ignored);
  paths_.push_back(path);
  return aside(path);
}

void NewFiles::add_tensors(const fs::path& path, const StateDict& tensors,
                           const std::map<std::string, std::string>& metadata) {
  write_safetensors(begin(path), tensors, metadata);
}

void NewFiles::add_text(const fs::path& path, std::string_view text) { replace_file(begin(path), text); }

void NewFiles::commit() {
  for (const fs::path& path : paths_) rename_file(aside(path), path);
  for (const fs::path& path : paths_) sync_directory(path.parent_path());
  paths_.clear();
  folder_.clear();
}

}  // namespace elinvar
