#pragma once
// Files of tokens in the format of llm.c: 256 little-endian int32 (a magic number, a version, the number of tokens,
// then zeros), then the tokens.
//
//   magic      version  a token
//   20240520   1        uint16
//   20240801   7        uint32
//
// Tokens are read on demand, so a set may be larger than memory. No file stays open, so a set may have any number of
// files.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "tensor/base/file.h"

namespace elinvar {

class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);  // throws Failure for another format or a truncated file
  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }                            // in tokens
  int bytes() const { return bytes_; }                              // per token
  void read(int64_t offset, int64_t count, int32_t* tokens) const;  // thread-safe

 private:
  std::filesystem::path path_;
  int bytes_ = 0;
  int64_t size_ = 0;
};

// Writes a token file under a temporary name, until finish() gives it its own.
class TokenWriter {
 public:
  TokenWriter(std::filesystem::path path, int64_t vocabulary);  // 2 bytes per token if all below `vocabulary` fit
  ~TokenWriter();                                               // without finish(), removes what was written
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  void add(const std::vector<int32_t>& tokens);
  void finish();  // the file appears under its name
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
