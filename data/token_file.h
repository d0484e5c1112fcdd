#pragma once
// Files of tokens, in the form of llm.c: 256 little-endian int32 (a magic number, a version, the number of tokens, then
// zeros), then the tokens.
//
//   magic      version  a token
//   20240520   1        uint16
//   20240801   7        uint32
//
// Tokens are read where they are wanted, so a set may be larger than memory. No file stays open, so it may have any
// number of files.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "tensor/base/file.h"

namespace elinvar {

class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);  // throws Failure for what is no such file, or is truncated
  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }                            // tokens
  int bytes() const { return bytes_; }                              // of a token
  void read(int64_t offset, int64_t count, int32_t* tokens) const;  // any number of threads at once

 private:
  std::filesystem::path path_;
  int bytes_ = 0;
  int64_t size_ = 0;
};

// Writes one: aside, until finish() gives it its name.
class TokenWriter {
 public:
  TokenWriter(std::filesystem::path path, int64_t vocabulary);  // tokens of 2 bytes if all below `vocabulary` fit
  void add(const std::vector<int32_t>& tokens);
  void finish();
  int64_t size() const { return size_; }

 private:
  void flush();
  std::filesystem::path path_, aside_;
  File file_;
  int bytes_;
  int64_t size_ = 0;
  std::string waiting_;
};

}  // namespace elinvar
