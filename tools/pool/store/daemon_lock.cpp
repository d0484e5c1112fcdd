#include "tools/pool/store/daemon_lock.h"

#include <sys/stat.h>

#include <chrono>
#include <thread>

namespace elinvar::pool {

namespace fs = std::filesystem;

FileIdentity FileIdentity::of(const fs::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

DaemonLock::DaemonLock(const fs::path& directory, File file)
    : directory_(directory),
      file_(std::make_unique<File>(std::move(file))),
      identity_(FileIdentity::of(file_->path())) {}

std::optional<DaemonLock> DaemonLock::take(const fs::path& directory) {
  File file = File::append(directory / "lock");
  for (int i = 0; i < 20; ++i) {
    if (file.try_lock()) return DaemonLock(directory, std::move(file));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return std::nullopt;
}

bool DaemonLock::keep() {
  if (FileIdentity::of(file_->path()) == identity_) return true;
  std::optional<DaemonLock> again = take(directory_);
  if (again) *this = std::move(*again);
  return again.has_value();
}

bool daemon_runs(const fs::path& directory) {
  if (!fs::exists(directory / "lock")) return false;
  return !File::append(directory / "lock").try_lock_shared();
}

}  // namespace elinvar::pool
