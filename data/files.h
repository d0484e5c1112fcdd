#pragma once
// A read-only set of files in a folder or an uncompressed .tar; names are the same in both. Reading is positional, so
// it is thread-safe and needs no open file per image.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

class FileSet {
 public:
  struct Entry {
    std::string path;  // relative, with '/'
    int64_t size = 0;  // bytes
  };

  virtual ~FileSet() = default;
  const std::vector<Entry>& entries() const { return entries_; }  // regular files, sorted by path, each path once

  // Returns the contents of entries()[i]. Throws Failure, which names the file.
  virtual std::string read(size_t i) const = 0;
  std::string read(std::string_view path) const;  // the entry must exist

  bool contains(std::string_view path) const { return find(path) != nullptr; }
  std::string where(std::string_view path) const;  // "set.tar: train/cat/1.jpg", for messages

 protected:
  explicit FileSet(std::string path) : path_(std::move(path)) {}
  const Entry* find(std::string_view path) const;

  std::string path_;
  std::vector<Entry> entries_;
};

// Opens a tar archive or a folder: recursively, without names that begin with a dot, and without following links to
// folders. Anything else in a folder, such as a pipe or a dangling link, is refused, not skipped. `exclude` has
// patterns of paths to leave out (matches_any); a folder is left out with all its contents.
std::unique_ptr<FileSet> open_files(const std::string& path, const std::vector<std::string>& exclude = {});

// Whether a path matches one of the shell patterns; * also matches '/'.
bool matches_any(const std::string& path, const std::vector<std::string>& patterns);

}  // namespace elinvar
