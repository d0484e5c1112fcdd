#include "tools/pool/store/store_file.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <charconv>
#include <chrono>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar::pool {

namespace fs = std::filesystem;

namespace {

constexpr int kVersion = 3;           // of the tables
constexpr int kPutBack = 3000;        // milliseconds to wait for a daemon to put the file back
constexpr int kBusyPatience = 10000;  // milliseconds to wait for other writers

constexpr const char* kTables = R"(
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, config TEXT, overrides TEXT, min_workers INTEGER,
  max_workers INTEGER, fixed_workers INTEGER, priority INTEGER, kinds TEXT, submitted REAL, deadline REAL,
  batch INTEGER, steps INTEGER, virtual_ranks INTEGER, state INTEGER, reason TEXT, cancel INTEGER DEFAULT 0,
  since REAL, ended REAL, stopping REAL DEFAULT 0, step INTEGER, digest TEXT, width INTEGER, recompute INTEGER,
  failures INTEGER, failed_at INTEGER, retry_at REAL);
CREATE INDEX open_jobs ON jobs (state);
CREATE TABLE slots (id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT, host TEXT, lease TEXT, kind TEXT, device TEXT,
  threads INTEGER, since REAL, gone REAL);
CREATE INDEX present_slots ON slots (gone);
CREATE TABLE processes (id INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER REFERENCES jobs, coordinator INTEGER,
  handle TEXT, started REAL, leaving REAL, ended REAL, leave_by REAL, met INTEGER, code INTEGER);
CREATE INDEX present_processes ON processes (ended);
CREATE TABLE places (process INTEGER REFERENCES processes, slot INTEGER REFERENCES slots, free INTEGER DEFAULT 0,
  PRIMARY KEY (process, slot)) WITHOUT ROWID;
CREATE UNIQUE INDEX one_worker_a_slot ON places (slot) WHERE free = 0;
CREATE TABLE measurements (job INTEGER REFERENCES jobs, generation INTEGER, workers TEXT, width INTEGER,
  recompute INTEGER, seconds REAL, rate REAL, predicted REAL, PRIMARY KEY (job, generation)) WITHOUT ROWID;
CREATE TABLE progress (time REAL, job INTEGER REFERENCES jobs, step INTEGER);
CREATE INDEX progress_by_time ON progress (time);
CREATE TABLE log (id INTEGER PRIMARY KEY, time REAL, job INTEGER, what TEXT, host TEXT, reason TEXT);
CREATE INDEX log_of_job ON log (job);
)";

// Schema changes of each version.
constexpr const char* kSinceVersion1 = R"(
ALTER TABLE jobs ADD COLUMN validate_every INTEGER DEFAULT 0;
ALTER TABLE jobs ADD COLUMN validation REAL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN start_took REAL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN finish_took REAL DEFAULT 0;
ALTER TABLE measurements ADD COLUMN doubt REAL DEFAULT 0;
ALTER TABLE measurements ADD COLUMN trial INTEGER DEFAULT 0;
)";
constexpr const char* kSinceVersion2 = R"(
ALTER TABLE jobs ADD COLUMN took TEXT DEFAULT '{}';
UPDATE jobs SET took = json_object('start', start_took, 'finish', finish_took);
ALTER TABLE jobs DROP COLUMN start_took;
ALTER TABLE jobs DROP COLUMN finish_took;
CREATE INDEX processes_of_job ON processes (job);
)";

// Returns the directory, which is created if it is absent. Whoever can write to it can replace the database.
fs::path made(const fs::path& directory) {
  if (directory == ":memory:") return directory;
  make_private_directory(directory);
  const bool for_all = (fs::status(directory).permissions() & fs::perms::others_write) != fs::perms::none;
  check(!for_all, "any user can write to {}: choose another folder, or chmod o-w it", directory.string());
  return fs::canonical(directory);
}

std::string file_of(const fs::path& directory) {
  return directory == ":memory:" ? directory.string() : (directory / "pool.db").string();
}

// Retries while the database is busy: SQLite itself does not wait when several processes create the file at once.
void with_patience(const std::function<void()>& change) {
  for (int waited = 0;; waited += 10) {
    try {
      return change();
    } catch (const SQLite::Exception& busy) {
      if (busy.getErrorCode() != SQLITE_BUSY || waited >= kBusyPatience) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Returns the directory. If the database was removed, waits for a running daemon to put it back, because journal files
// left from the old database would damage a new one.
fs::path not_removed(const fs::path& directory) {
  if (directory == ":memory:") return directory;
  const fs::path file = file_of(directory), rest = file.string() + "-wal";
  const auto removed = [&] { return !fs::exists(file) && (fs::exists(rest) || daemon_runs(directory)); };
  for (int waited = 0; removed(); waited += 50) {
    if (waited >= kPutBack)
      fail("{} was removed: put a copy back; or, for an empty pool, end its daemon and remove {} too", file.string(),
           rest.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return directory;
}

fs::path existing(const fs::path& directory) {
  check(fs::exists(directory / "pool.db"), "{} holds no pool; `pool serve --dir` or `pool submit --dir` makes one",
        directory.string());
  return fs::canonical(directory);
}

// Returns the greatest number among the job directories; 0 if there are none.
Id last_job_in(const fs::path& directory) {
  Id last = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory / "jobs", none)) {
    const std::string name = entry.path().filename().string();
    Id id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error == std::errc() && end == name.data() + name.size()) last = std::max(last, id);
  }
  return last;
}

bool tells_of_damage(const SQLite::Exception& error) {
  return error.getErrorCode() == SQLITE_NOTADB || error.getErrorCode() == SQLITE_CORRUPT;
}

[[noreturn]] void fail_to_use(const fs::path& directory, const SQLite::Exception& error) {
  const std::string text = fmt::format("{}: {}", file_of(directory), error.what());
  if (!tells_of_damage(error)) throw Failure(text);
  throw StoreDamage(fmt::format("{}; put a copy back, or move it away for an empty pool: what jobs have made is in {}",
                                text, (directory / "jobs").string()));
}

}  // namespace

StoreFile::StoreFile(const fs::path& directory, Open how)
    : StoreFile(how == Open::kExisting ? existing(directory) : not_removed(made(directory)),
                how == Open::kExisting ? SQLite::OPEN_READWRITE : SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE) {}

StoreFile::StoreFile(const fs::path& directory, int flags) try
    : directory_(directory), db_(file_of(directory), flags, kBusyPatience) {
  with_patience([&] { db_.exec("PRAGMA journal_mode = WAL"); });
  db_.exec("PRAGMA synchronous = FULL");  // recorded workers survive a power failure
  db_.exec("PRAGMA foreign_keys = ON");
  // If several processes find the database empty, one of them creates the tables.
  SQLite::Transaction first(db_, SQLite::TransactionBehavior::IMMEDIATE);
  const int version = db_.execAndGet("PRAGMA user_version").getInt();
  if (version == 0) {
    db_.exec(kTables);
    if (const Id last = last_job_in(directory_); last > 0)  // a new job must not reuse an old job's directory
      db_.exec(fmt::format("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', {})", last));
  }
  if (version < kVersion) {
    if (version > 0 && directory_ != ":memory:")
      check(DaemonLock::take(directory_).has_value(),
            "a daemon of an older version serves {}; end it first, and start one of this version: jobs go on meanwhile",
            directory_.string());
    if (version < 2) db_.exec(kSinceVersion1);
    db_.exec(kSinceVersion2);
    db_.exec("PRAGMA user_version = " + std::to_string(kVersion));
  }
  first.commit();
  check(version <= kVersion, "{} is of version {}, and this program knows version {}", file_of(directory), version,
        kVersion);
  identity_ = FileIdentity::of(file_of(directory));
} catch (const SQLite::Exception& error) {
  fail_to_use(directory, error);
}

void StoreFile::check_undamaged(const std::exception& error) const {
  const auto* of_database = dynamic_cast<const SQLite::Exception*>(&error);
  if (of_database != nullptr && tells_of_damage(*of_database)) fail_to_use(directory_, *of_database);
}

bool StoreFile::in_place() const {
  return directory_ == ":memory:" || FileIdentity::of(file_of(directory_)) == identity_;
}

void StoreFile::reopen() { *this = StoreFile(directory_, Open::kExisting); }

void StoreFile::put_back() {
  const fs::path file = file_of(directory_), copy = file.string() + ".copy";
  fs::remove(copy);
  {
    SQLite::Statement all(db_, "VACUUM INTO ?");
    all.bind(1, copy.string());
    all.exec();
  }
  std::error_code taken;
  const bool another = FileIdentity::of(file) != FileIdentity{};
  if (!another) {
    for (const char* of_old : {"-wal", "-shm"}) fs::remove(file.string() + of_old);
    fs::create_hard_link(copy, file, taken);  // fails if the name exists
  }
  if (another || taken)
    fail(
        "{} is another file than the one that was opened: {} holds what is known here. End the daemon, choose one of "
        "the two, and start it again",
        file.string(), copy.string());
  fs::remove(copy);
  reopen();
}

void StoreFile::transaction(const std::function<void()>& change) try {
  SQLite::Transaction all(db_, SQLite::TransactionBehavior::IMMEDIATE);
  change();
  all.commit();
} catch (const SQLite::Exception& error) {
  check_undamaged(error);
  fail("{}: {}", (directory_ / "pool.db").string(), error.what());
}

}  // namespace elinvar::pool
