#include "tools/training/new_files.h"

#include "tensor/base/file.h"
#include "tensor/safetensors.h"

namespace elinvar {

namespace fs = std::filesystem;

NewFiles::~NewFiles() {
  std::error_code ignored;
  for (const NewFile& file : files_) fs::remove(file.aside, ignored);
  for (; !folders_.empty(); folders_.pop_back()) fs::remove(folders_.back(), ignored);
}

void NewFiles::make_folder(const fs::path& folder) {
  if (fs::is_directory(folder)) return;
  make_directories(folder);
  folders_.push_back(folder);
}

const fs::path& NewFiles::begin(const fs::path& path) {
  check_replaceable(path);
  remove_abandoned(path);
  return files_.emplace_back(NewFile{path, unfinished_name(path)}).aside;
}

void NewFiles::add_tensors(const fs::path& path, const StateDict& tensors,
                           const std::map<std::string, std::string>& metadata) {
  write_safetensors(begin(path), tensors, metadata);
}

void NewFiles::add_text(const fs::path& path, std::string_view text) {
  File file = File::create(begin(path));
  file.write(text);
  file.sync();
}

void NewFiles::commit() {
  for (const NewFile& file : files_) rename_file(file.aside, file.path);
  for (const NewFile& file : files_) sync_directory(file.path.parent_path());
  files_.clear();
  folders_.clear();
}

}  // namespace elinvar
