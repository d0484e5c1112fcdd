#pragma once
// A new folder for temporary files, removed with its contents at the end of the scope.
#include <filesystem>
#include <string>

namespace elinvar {

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name);  // named "name-" and a suffix; throws Failure if it cannot be made
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace elinvar
