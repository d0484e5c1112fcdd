#pragma once
// Injects disk faults: a flipped bit, a full disk, a read-only folder.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tensor/base/file.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {

inline void flip_byte(const std::filesystem::path& path, size_t at) {
  std::string bytes = read_file(path);
  bytes[at % bytes.size()] ^= 1;
  replace_file(path, bytes);
}

// Imitates a full disk: no file can grow beyond `bytes`.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

// Prevents the creation of files in a folder, even by root.
class ReadOnly {
 public:
  explicit ReadOnly(const TemporaryFolder& folder, const std::filesystem::path& path) : path_(path) {
    const std::filesystem::perms read = std::filesystem::perms::owner_read | std::filesystem::perms::group_read |
                                        std::filesystem::perms::others_read | std::filesystem::perms::owner_exec |
                                        std::filesystem::perms::group_exec | std::filesystem::perms::others_exec;
    std::filesystem::permissions(folder.path(), read | std::filesystem::perms::owner_write);
    std::filesystem::permissions(path_, read);
    if (user_ == 0 && seteuid(65534) != 0) throw std::runtime_error("cannot become nobody");
  }
  ~ReadOnly() {
    if (user_ == 0 && seteuid(user_) != 0) std::abort();
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }

 private:
  std::filesystem::path path_;
  uid_t user_ = geteuid();
};

inline size_t entries(const std::filesystem::path& path) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
}

}  // namespace elinvar::test
