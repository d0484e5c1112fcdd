#include "tensor/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCreate = "create";
constexpr const char* kUnfinished = ".writing-";  // begins the names of unfinished files

const char* hint_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; make room on that disk or choose another directory";
    case EROFS:
    case EACCES:
    case EPERM:
      return "; choose a directory that can be written to";
    default:
      return "";
  }
}

// Throws a Failure that names the cause, for errors whose system message does not.
void explain_create(int error, const fs::path& path) {
  const std::string folder = path.parent_path().string();
  if (error == EEXIST) fail("{} exists; choose another name", path.string());
  if (error == EISDIR) fail("cannot create {}: it is a folder; name a file in it", path.string());
  if (error == ENOENT && !folder.empty()) fail("cannot create {}: there is no folder {}", path.string(), folder);
  if (error == ENOTDIR) fail("cannot create {}: {} is no folder", path.string(), folder);
}

[[noreturn]] void fail_with(int error, std::string_view what, const fs::path& path) {
  if (what == kCreate) explain_create(error, path);
  fail("cannot {} {}: {}{}", what, path.string(), std::strerror(error), hint_for(error));
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Returns the file that a symbolic link names, whether it exists or not.
fs::path followed(fs::path path) {
  std::error_code unreadable;
  for (int links = 0; links < 40 && fs::is_symlink(path, unreadable); ++links)
    path = path.parent_path() / fs::read_symlink(path, unreadable);
  return path;
}

}  // namespace

File::File(fs::path path, int flags, unsigned mode) : path_(std::move(path)) {
  // O_NONBLOCK, because opening a pipe would wait for its other end.
  do descriptor_ = ::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0 && errno == ENXIO) fail("cannot open {}: it is not a regular file", path_.string());
  if (descriptor_ < 0) fail_with(errno, (flags & O_CREAT) ? kCreate : "open", path_);
  struct stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) return;
  const int error = errno;
  ::close(descriptor_);
  if (!known) fail_with(error, "look at", path_);
  fail("cannot open {}: it is not a regular file", path_.string());
}

File File::open(const fs::path& path) { return {path, O_RDONLY}; }
File File::create(const fs::path& path) { return {path, O_WRONLY | O_CREAT | O_EXCL}; }
File File::create_private(const fs::path& path) { return {path, O_WRONLY | O_CREAT | O_EXCL, 0600}; }
File File::append(const fs::path& path) { return {path, O_RDWR | O_CREAT | O_APPEND}; }
File File::modify(const fs::path& path) { return {path, O_RDWR | O_CREAT}; }

File File::temporary(const fs::path& folder) {
  std::string name = (folder / "elinvar-XXXXXX").string();
  File file;
  file.descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file.descriptor_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    // This file system has no files without a name. A process that is killed here leaves an empty one.
    file.descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (file.descriptor_ >= 0 && ::unlink(name.c_str()) != 0) fail_with(errno, "remove", name);
  }
  file.path_ = name;
  if (file.descriptor_ < 0) fail_with(errno, kCreate, name);
  return file;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

int64_t File::size() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) fail_with(errno, "look at", path_);
  return status.st_size;
}

bool File::in_place() const {
  struct stat here, there;
  if (::fstat(descriptor_, &here) != 0) fail_with(errno, "look at", path_);
  if (::stat(path_.c_str(), &there) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ESTALE) return false;
    fail_with(errno, "look at", path_);
  }
  return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

void File::read(int64_t offset, void* bytes, size_t count) const {
  char* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, to, count, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with(errno, "read", path_);
    if (got == 0)
      fail("cannot read {}: it ends at byte {}, expected {} more; is it truncated?", path_.string(), offset, count);
    to += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

void File::write(const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t put = ::write(descriptor_, from, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail_with(put < 0 ? errno : ENOSPC, "write", path_);
    from += put;
    count -= static_cast<size_t>(put);
  }
}

void File::overwrite(int64_t offset, const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t put = ::pwrite(descriptor_, from, count, offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail_with(put < 0 ? errno : ENOSPC, "write", path_);
    from += put;
    offset += put;
    count -= static_cast<size_t>(put);
  }
}

void File::truncate(int64_t size) {
  if (::ftruncate(descriptor_, size) != 0) fail_with(errno, "shorten", path_);
}

void File::reserve(int64_t size) {
  int error = 0;
  do error = ::posix_fallocate(descriptor_, 0, size);
  while (error == EINTR);
  if (error != 0) fail_with(error, fmt::format("reserve {} bytes for", size), path_);
}

std::shared_ptr<void> File::map(size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (at == MAP_FAILED) fail_with(errno, fmt::format("map {} bytes of", bytes), path_);
  return {at, [bytes](void* begin) { ::munmap(begin, bytes); }};
}

void File::sync() {
  if (::fsync(descriptor_) != 0) fail_with(errno, "write", path_);
}

bool File::try_lock() { return lock(LOCK_EX); }
bool File::try_lock_shared() { return lock(LOCK_SH); }

bool File::lock(int kind) {
  if (::flock(descriptor_, kind | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) fail_with(errno, "lock", path_);
  return false;
}

std::string read_file(const fs::path& path) {
  const File file = File::open(path);
  std::string text;
  try {
    text.resize(static_cast<size_t>(file.size()));
  } catch (const std::exception&) {
    fail("cannot read {}: there is no memory for its {} bytes", path.string(), file.size());
  }
  file.read(0, text.data(), text.size());
  return text;
}

namespace {

// Begins the names of unfinished files of processes on this host.
std::string unfinished_prefix() {
  char host[65] = {};
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}{}-", kUnfinished, host);
}

// The name of a file, cut so that there is room for more.
std::string short_name(const fs::path& path) { return path.filename().string().substr(0, 100); }

}  // namespace

fs::path unfinished_name(const fs::path& path) {
  const fs::path folder = folder_of(path);
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail_with(fs::exists(folder, error) ? ENOTDIR : ENOENT, kCreate, path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_with(errno, kCreate, path);
  static std::atomic<int64_t> next{0};
  while (true) {  // a process with the same number may have died and left files, or runs on another host
    const fs::path name =
        path.parent_path() / fmt::format("{}{}-{}-{}", unfinished_prefix(), ::getpid(), next++, short_name(path));
    if (!fs::exists(name, error)) return name;
  }
}

void remove_abandoned(const fs::path& path) {
  const std::string prefix = unfinished_prefix(), ending = "-" + short_name(path);
  std::error_code unreadable;
  for (fs::directory_iterator other(folder_of(path), unreadable), end; !unreadable && other != end;
       other.increment(unreadable)) {
    const std::string name = other->path().filename().string();
    pid_t writer = 0;
    if (!name.starts_with(prefix) || !name.ends_with(ending)) continue;
    if (std::from_chars(name.data() + prefix.size(), name.data() + name.size(), writer).ec != std::errc()) continue;
    std::error_code ignored;
    if (writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) fs::remove(other->path(), ignored);
  }
}

void check_replaceable(const fs::path& named) {
  const fs::path path = followed(named);
  (void)unfinished_name(path);
  struct stat now;
  if (::stat(path.c_str(), &now) != 0) {
    if (errno != ENOENT) fail_with(errno, kCreate, path);
  } else if (!S_ISREG(now.st_mode)) {
    if (S_ISDIR(now.st_mode)) fail_with(EISDIR, kCreate, path);
    fail("cannot replace {}: it is not a regular file", path.string());
  }
}

void replace_file(const fs::path& named, std::string_view text) {
  check_replaceable(named);
  const fs::path path = followed(named);
  const fs::path aside = unfinished_name(path);
  try {
    File file = File::create(aside);
    file.write(text);
    file.sync();
    rename_file(aside, path);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_directory(path.parent_path());
}

void remove_unfinished_files(const fs::path& directory) {
  for (const fs::path& path : paths_in(directory)) {
    std::error_code ignored;
    if (path.filename().string().starts_with(kUnfinished)) fs::remove(path, ignored);
  }
}

bool create_file(const fs::path& path, std::string_view text) {
  const fs::path aside = unfinished_name(path);
  int error = 0;
  try {
    File file = File::create(aside);
    file.write(text);
    file.sync();
    // A link, unlike a rename, fails where the name exists.
    if (::link(aside.c_str(), path.c_str()) != 0) error = errno;
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  ::unlink(aside.c_str());
  if (error == EEXIST) return false;
  if (error != 0) fail_with(error, kCreate, path);
  sync_directory(path.parent_path());
  return true;
}

void sync_directory(const fs::path& path) {
  const fs::path directory = path.empty() ? fs::path(".") : path;
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_with(errno, "open", directory);
  const int result = ::fsync(descriptor), error = errno;
  ::close(descriptor);
  // Some file systems have no fsync of directories; then there is nothing to wait for.
  if (result != 0 && error != EINVAL) fail_with(error, "write", directory);
}

void make_directories(const fs::path& path) {
  std::error_code error, ignored;
  if (path.empty() || fs::is_directory(path, error)) return;
  make_directories(path.parent_path());
  fs::create_directory(path, error);  // no error if another process was faster
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored))
    fail("cannot create the directory {}: a file has this name; choose another one", path.string());
  if (error) fail_with(error.value(), "create the directory", path);
  sync_directory(path.parent_path());
}

void make_private_directory(const fs::path& path) {
  const fs::path directory = path.has_filename() ? path : path.parent_path();
  if (directory.has_parent_path()) make_directories(directory.parent_path());
  if (::mkdir(directory.c_str(), 0700) == 0) return sync_directory(directory.parent_path());
  make_directories(directory);  // it exists, or this fails
}

std::vector<fs::path> paths_in(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  if (error == std::errc::no_such_file_or_directory) return paths;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) paths.push_back(entry->path());
  if (error) fail_with(error.value(), "read the directory", directory);
  return paths;
}

void rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_with(errno, kCreate, to);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_with(error.value(), "remove", path);
}

}  // namespace elinvar
