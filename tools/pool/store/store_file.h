#pragma once
// DIR/pool.db as a file: created, upgraded, checked and restored. Every change is a transaction: a process that is
// killed at any moment leaves the state before the change or after it. Only its owner may read the file.
#include <SQLiteCpp/SQLiteCpp.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "tensor/base/failure.h"
#include "tools/pool/plan/state.h"
#include "tools/pool/store/daemon_lock.h"

namespace elinvar::pool {

// The database is damaged; retrying does not help.
struct StoreDamage : Failure {
  using Failure::Failure;
};

class StoreFile {
 public:
  enum class Open { kOrCreate, kExisting };
  // kOrCreate: creates the directory, accessible to its owner only, and the database if they do not exist; new jobs get
  // numbers above those of existing job directories. ":memory:" is a database without files. kExisting: throws
  // UsageError if there is no pool. Both upgrade an older database, unless a daemon runs, which would not understand
  // it, and throw Failure if the file is damaged or not a database.
  StoreFile(const std::filesystem::path& directory, Open how);

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path job_directory(Id job) const { return directory_ / "jobs" / std::to_string(job); }

  bool in_place() const;  // whether the path still leads to the file that this object has open
  void reopen();          // opens the file to which the path leads now; throws UsageError if there is none
  // Writes the database again if its file was removed. Throws Failure if another file has taken its place.
  void put_back();

  // Throws StoreDamage with the file and a remedy if `error` means that the database is damaged.
  void check_undamaged(const std::exception& error) const;

  // Runs `change` as one transaction; rolls back if it throws. Must not be nested.
  void transaction(const std::function<void()>& change);

 protected:
  SQLite::Database& db() { return db_; }  // the same object as long as this one lives, also after put_back()

 private:
  StoreFile(const std::filesystem::path& directory, int flags);
  StoreFile(StoreFile&&) = default;
  StoreFile& operator=(StoreFile&&) = default;
  std::filesystem::path directory_;
  SQLite::Database db_;
  FileIdentity identity_;
};

}  // namespace elinvar::pool
