#pragma once
// A fresh folder for temporary files that goes, with all that is in it, with its scope.
#include <filesystem>
#include <string>

namespace elinvar {

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name);  // it is called "name-" and something; Failure if it cannot be made
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace elinvar
