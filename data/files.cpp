#include "data/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "data/tar.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

std::string what_is(const fs::file_status& status, const std::error_code& error) {
  switch (status.type()) {
    case fs::file_type::not_found:
      return "a link to nothing";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::none:
      return fmt::format("a link that cannot be followed ({})", error.message());
    default:
      return "a device";
  }
}

class Folder final : public FileSet {
 public:
  Folder(const std::string& path, const std::vector<std::string>& exclude) : FileSet(path) {
    const fs::path root(path);
    try {
      for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
        const std::string relative = it->path().lexically_relative(root).generic_string();
        std::error_code error;
        const fs::file_status status = it->status(error);
        if (it->path().filename().string().front() == '.' || matches_any(relative, exclude)) {
          if (fs::is_directory(status)) it.disable_recursion_pending();
        } else if (fs::is_regular_file(status)) {
          entries_.push_back({relative, static_cast<int64_t>(it->file_size())});
        } else if (!fs::is_directory(status)) {
          fail("[data] '{}' is neither a file nor a folder, but {}; remove it from the folder", it->path().string(),
               what_is(status, error));
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

}  // namespace elinvar
