#pragma once
// A file of lines that only grows and survives a crash at any byte: a line counts once its newline is there, and what
// follows the last newline is cut off when the file is opened. The form of ledger, metrics and events.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/file.h"

namespace elinvar {

std::vector<std::string> whole_lines(std::string_view text);  // without the newlines that end them

class LineFile {
 public:
  explicit LineFile(const std::filesystem::path& path);  // created if absent
  // Gives the file, if there is one, another inode with the same whole lines: what a process that had it open before
  // adds from then on goes nowhere.
  static void renew(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::vector<std::string> lines() const;
  void append(std::string_view line);  // is in the file after write()
  // All that was appended, at once; if it fails (the disk is full), the file is as before and Failure is thrown.
  void write();
  void keep(size_t lines);  // drops all lines after the first so many
  // If the file was deleted or moved, writes it again with all its lines and returns true. Failure if it was replaced
  // or truncated.
  bool restore();
  void sync() { file_.sync(); }

 private:
  File file_;
  std::string appended_;
  int64_t size_ = 0;
};

}  // namespace elinvar
