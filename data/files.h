#pragma once
// A read-only set of files under one path: a folder or an uncompressed .tar, with the same names for the same files.
// Reading is positional, so it is thread-safe and needs no open file per image.
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

  // The whole of entries()[i]. Throws Failure naming the file.
  virtual std::string read(size_t i) const = 0;
  std::string read(std::string_view path) const;  // of an entry that exists

  bool contains(std::string_view path) const { return find(path) != nullptr; }
  std::string where(std::string_view path) const;  // "set.tar: train/cat/1.jpg", for messages

 protected:
  explicit FileSet(std::string path) : path_(std::move(path)) {}
  const Entry* find(std::string_view path) const;

  std::string path_;
  std::vector<Entry> entries_;
};

// A folder (recursively, without names that begin with a dot, without following links to folders), or a file that is a
// tar archive. Anything else in a folder, such as a pipe or a dangling link, is refused instead of skipped.
// `exclude` are patterns of paths that are left out, folders with all that is in them (see matches_any).
std::unique_ptr<FileSet> open_files(const std::string& path, const std::vector<std::string>& exclude = {});

// Whether a path matches one of the shell patterns, in which * also matches '/'.
bool matches_any(const std::string& path, const std::vector<std::string>& patterns);

}  // namespace elinvar
