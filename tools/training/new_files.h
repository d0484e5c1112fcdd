#pragma once
// Output files that appear together once all are complete.
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/state.h"

namespace elinvar {

// Writes each file under another name; commit() renames all. Without commit() the destructor removes them and the
// folders that make_folder() made.
class NewFiles {
 public:
  NewFiles() = default;
  ~NewFiles();
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  void make_folder(const std::filesystem::path& folder);
  void add_tensors(const std::filesystem::path& path, const StateDict& tensors,
                   const std::map<std::string, std::string>& metadata = {});
  void add_text(const std::filesystem::path& path, std::string_view text);
  // Renames the files in the order in which they were added, and replaces those that exist. After a crash between two
  // renames the later files are the old ones.
  void commit();

 private:
  struct NewFile {
    std::filesystem::path path, aside;  // its name, and the one under which it is written
  };
  const std::filesystem::path& begin(const std::filesystem::path& path);

  std::vector<NewFile> files_;
  std::vector<std::filesystem::path> folders_;  // those that did not exist before
};

}  // namespace elinvar
