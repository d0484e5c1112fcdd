#pragma once
// The lock of a pool's directory, which allows one daemon at a time.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "tensor/base/file.h"

namespace elinvar::pool {

// Identifies the file that a path leads to now; zeros if there is none.
struct FileIdentity {
  uint64_t device = 0, number = 0;
  static FileIdentity of(const std::filesystem::path& path);
  bool operator==(const FileIdentity&) const = default;
};

// The lock that a pool's daemon holds while it lives. A command that checks for a daemon holds it for a moment.
class DaemonLock {
 public:
  static std::optional<DaemonLock> take(const std::filesystem::path& directory);  // empty if a daemon runs
  // Takes the lock again if its file was removed, so that no second daemon gets it. Returns false if another daemon has
  // it.
  bool keep();

 private:
  DaemonLock(const std::filesystem::path& directory, File file);
  std::filesystem::path directory_;
  std::unique_ptr<File> file_;
  FileIdentity identity_;
};
bool daemon_runs(const std::filesystem::path& directory);  // a process holds the lock

}  // namespace elinvar::pool
