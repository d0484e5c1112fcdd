#include "data/files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "data/tar.h"
#include "tensor/check.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

class Folder final : public FileSet {
 public:
  Folder(const std::string& path, const std::vector<std::string>& exclude) : FileSet(path) {
    const fs::path root(path);
    try {
      for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
        const std::string relative = it->path().lexically_relative(root).generic_string();
        if (it->path().filename().string().front() == '.' || matches_any(relative, exclude)) {
          if (it->is_directory()) it.disable_recursion_pending();
        } else if (it->is_regular_file()) {
          entries_.push_back({relative, static_cast<int64_t>(it->file_size())});
        }
      }
    } catch (const fs::filesystem_error& e) {
      fail("[data] cannot list folder '{}': {}", path, e.code().message());
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.path < b.path; });
  }

  std::string read(size_t i) const override { return read_file(path_ + '/' + entries_[i].path); }
};

}  // namespace

const FileSet::Entry* FileSet::find(std::string_view path) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), path,
                                   [](const Entry& e, std::string_view p) { return e.path < p; });
  return it != entries_.end() && it->path == path ? &*it : nullptr;
}

std::string FileSet::read(std::string_view path) const {
  const Entry* entry = find(path);
  if (!entry) fail("[data] '{}' is not there", where(path));
  return read(static_cast<size_t>(entry - entries_.data()));
}

std::string FileSet::where(std::string_view path) const { return fmt::format("{}: {}", path_, path); }

bool matches_any(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return fnmatch(p.c_str(), path.c_str(), 0) == 0; });
}

std::unique_ptr<FileSet> open_files(const std::string& path, const std::vector<std::string>& exclude) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) fail("[data] '{}' does not exist; data.path is relative to the current folder", path);
  if (fs::is_directory(status)) return std::make_unique<Folder>(path, exclude);
  return open_tar(path, exclude);
}

ReadableFile::ReadableFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status {};
  if (fd_ >= 0 && ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  const int error = errno;
  if (fd_ < 0) fail("[data] cannot open '{}': {}", path, std::strerror(error));
  ::close(fd_);
  fail("[data] '{}' is not a regular file", path);
}

ReadableFile::~ReadableFile() { ::close(fd_); }

void ReadableFile::read(void* bytes, int64_t offset, int64_t count) const {
  auto* at = static_cast<char*>(bytes);
  const int64_t end = offset + count;
  while (offset < end) {
    const ssize_t got = ::pread(fd_, at, static_cast<size_t>(end - offset), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("[data] cannot read '{}' at byte {}: {}", path_, offset, std::strerror(errno));
    if (got == 0) fail("[data] '{}' ends at byte {}, expected {} more: is it truncated?", path_, offset, end - offset);
    at += got;
    offset += got;
  }
}

std::string read_file(const std::string& path) {
  const ReadableFile file(path);
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(bytes.data(), 0, file.size());
  return bytes;
}

}  // namespace elinvar
