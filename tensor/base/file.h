#pragma once
// Files as a run needs them: whole reads, writes that are on the disk when a call says so, and changes of name that
// either happened or did not. Every error is a Failure that names the file and what the system said; where the disk is
// full or read-only it says so in words.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

// An open regular file (a Failure if it is anything else); closed with its owner. Any number of threads may read();
// the rest is not thread-safe.
class File {
 public:
  static File open(const std::filesystem::path& path);            // to read; must exist
  static File create(const std::filesystem::path& path);          // to write; must not exist
  static File create_private(const std::filesystem::path& path);  // like create(); its owner alone may read it
  static File append(const std::filesystem::path& path);          // to read and to add at the end; created if absent
  static File modify(const std::filesystem::path& path);          // to read and to overwrite; created if absent
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  // Whether its path still leads to this file: false once that was deleted, moved or replaced.
  bool in_place() const;
  // Exactly `count` bytes from `offset`; fewer in the file is a Failure.
  void read(int64_t offset, void* bytes, size_t count) const;
  void write(const void* bytes, size_t count);  // all of them
  void write(std::string_view text) { write(text.data(), text.size()); }
  void overwrite(int64_t offset, const void* bytes, size_t count);  // what is there already; not of an append()ed file
  void truncate(int64_t size);
  void sync();  // returns when what was written is on the disk
  // Whether this process now holds the file's advisory lock; released with the File, also by a crash.
  bool try_lock();
  bool try_lock_shared();  // any number of processes at once, but none of the above

 private:
  File(std::filesystem::path path, int flags, unsigned mode = 0666);
  bool lock(int kind);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

std::string read_file(const std::filesystem::path& path);

// The file has either its old contents or all of `text`, whatever happens in between, and the new ones on return.
void replace_file(const std::filesystem::path& path, std::string_view text);

// Creates the file with all of `text`, durably, and returns true; returns false and changes nothing if the name exists.
// If several processes try, one succeeds.
bool create_file(const std::filesystem::path& path, std::string_view text);

// Removes temporary files that processes left in a directory when they died in replace_file() or create_file(). Ignores
// errors.
void remove_unfinished_files(const std::filesystem::path& directory);

// Makes created, renamed and removed names in a directory durable.
void sync_directory(const std::filesystem::path& path);

// Makes a directory and those above it that are missing; their names are durable on return.
void make_directories(const std::filesystem::path& path);
// The paths in a directory, in no order; none if there is no such directory.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& directory);
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);  // a directory too
void remove_tree(const std::filesystem::path& path);

}  // namespace elinvar
