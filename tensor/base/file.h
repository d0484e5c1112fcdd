#pragma once
// Files for runs: whole reads, durable writes, and atomic renames. Every error is a Failure that names the file and
// gives the system's message; it says in words if the disk is full or read-only.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

// An open regular file; any other kind is a Failure. The destructor closes it. Any number of threads may read(); the
// rest is not thread-safe.
class File {
 public:
  static File open(const std::filesystem::path& path);            // to read; must exist
  static File create(const std::filesystem::path& path);          // to write; must not exist
  static File create_private(const std::filesystem::path& path);  // like create(), but only its owner may read it
  static File append(const std::filesystem::path& path);          // to read and to add at the end; created if absent
  static File modify(const std::filesystem::path& path);          // to read and to overwrite; created if absent
  // To read and to write; has no name, so the system removes it when its last user is gone, however that ends.
  static File temporary(const std::filesystem::path& folder);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  // Returns whether its path still leads to this file: false once that was deleted, moved or replaced.
  bool in_place() const;
  // Reads exactly `count` bytes from `offset`; throws Failure if the file has fewer.
  void read(int64_t offset, void* bytes, size_t count) const;
  void write(const void* bytes, size_t count);  // all of them
  void write(std::string_view text) { write(text.data(), text.size()); }
  void overwrite(int64_t offset, const void* bytes, size_t count);  // bytes that exist already; not after append()
  void truncate(int64_t size);
  void reserve(int64_t size);  // makes it `size` bytes long, of zeros where it was shorter, and takes the room on disk
  // Maps the first bytes, which the file must have, to memory that reads and writes them; that needs no open File.
  std::shared_ptr<void> map(size_t bytes);
  void sync();  // returns once all written bytes are durable
  // Returns whether this process now holds the file's advisory lock, which is released with the File or by a crash.
  bool try_lock();
  bool try_lock_shared();  // any number of processes may hold it, but none may hold the above

 private:
  File() = default;
  File(std::filesystem::path path, int flags, unsigned mode = 0666);
  bool lock(int kind);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

std::string read_file(const std::filesystem::path& path);

// Returns a name beside `path` for a file that is renamed to it once it is whole. No other file has this name. Throws
// Failure if the folder is missing or cannot be written to.
std::filesystem::path unfinished_name(const std::filesystem::path& path);

// Removes files with names of unfinished_name() for `path` whose processes, on this host, have ended. Ignores errors.
void remove_abandoned(const std::filesystem::path& path);

// Throws Failure if replace_file() could not write this file. Call it before a long computation of the contents.
void check_replaceable(const std::filesystem::path& path);

// Replaces the contents atomically: after a crash the file has either its old contents or all of `text`. Durable on
// return. Replaces regular files only; a symbolic link stays, and the file that it names is replaced.
void replace_file(const std::filesystem::path& path, std::string_view text);

// Creates the file with all of `text`, durably, and returns true; returns false and changes nothing if the name exists.
// If several processes try, one succeeds.
bool create_file(const std::filesystem::path& path, std::string_view text);

// Removes files with names of unfinished_name(), which processes that died left in a directory. Ignores errors.
void remove_unfinished_files(const std::filesystem::path& directory);

// Makes created, renamed and removed names in a directory durable.
void sync_directory(const std::filesystem::path& path);

// Makes a directory and those above it that are missing; their names are durable on return.
void make_directories(const std::filesystem::path& path);
// Makes a directory that only its owner may use, and those above it that are missing. An existing one keeps its mode.
void make_private_directory(const std::filesystem::path& path);
// The paths in a directory, in no order; none if there is no such directory.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& directory);
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);  // also renames directories
void remove_tree(const std::filesystem::path& path);

}  // namespace elinvar
