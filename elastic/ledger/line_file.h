#pragma once
// A file of lines that only grows and survives a crash at any byte: a line counts once its newline is written, and text
// after the last newline is cut off when the file is opened. Ledger, metrics and events have this form.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/file.h"

namespace elinvar {

std::vector<std::string> whole_lines(std::string_view text);  // without their newlines

class LineFile {
 public:
  explicit LineFile(const std::filesystem::path& path);  // created if absent
  // Moves the file's whole lines, if it exists, to another inode. Lines that a process with the old file open writes
  // later are lost.
  static void renew(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::vector<std::string> lines() const;
  void append(std::string_view line);  // is in the file after write()
  // Writes all appended lines at once. If that fails (the disk is full), the file stays as before and Failure is
  // thrown.
  void write();
  void keep(size_t lines);  // drops all but the first `lines` lines
  // If the file was deleted or moved, writes it again with all its lines and returns true. Throws Failure if it was
  // replaced or truncated.
  bool restore();
  void sync() { file_.sync(); }

 private:
  File file_;
  std::string appended_;
  int64_t size_ = 0;
};

}  // namespace elinvar
