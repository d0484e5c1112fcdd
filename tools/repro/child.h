#pragma once
// Other programs of the project, run to their end, and a place for what they write.
#include <filesystem>
#include <string>
#include <vector>

namespace elinvar {

struct Ended {
  int code = 0;  // exit code; 128 + signal if one ended it
  std::string out, err;
  std::string last_words() const;  // the last lines of err
};

// Failure if it cannot be started. `folder` is where its output is kept meanwhile.
Ended run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                  const std::filesystem::path& folder);

// A program that is installed beside this one.
std::filesystem::path beside_this_program(const std::string& name);

// A fresh folder for temporary files that goes with its scope.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace elinvar
