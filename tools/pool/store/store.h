#pragma once
// DIR/pool.db: the state of a pool, in SQLite. Every change is a transaction: a process that is killed at any moment
// leaves the state before the change or after it. The commands read and write the database whether a daemon runs or
// not: `submit` adds a job, `cancel` sets a flag, and the daemon finds both. Only its owner may read it.
//
//   jobs          the request, the progress and the result of each job
//   slots         every slot that ever existed; `gone` is set when its machine goes. Ids are never reused
//   processes     coordinators and workers, recorded before they are started. A worker's slots are in `places`: no slot
//                 has two workers that have not ended
//   measurements  the speed of jobs on their allocations
//   progress      the step of each job over time
//   log           decisions and events, with reasons
#include <fmt/format.h>

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tensor/base/failure.h"
#include "tensor/base/file.h"
#include "tools/pool/plan/state.h"

namespace elinvar::pool {

double wall_clock();  // seconds since 1970; the clock of all times in the store

struct JobRecord {
  // The job as submitted.
  Id id = 0;
  std::string name;
  std::string config;                  // text of the configuration
  std::vector<std::string> overrides;  // "table.key=value"
  int min_workers = 1, max_workers = 1, fixed_workers = 1, priority = 0;
  std::vector<std::string> kinds;
  double submitted = 0, deadline = kNever;
  int64_t batch = 1, steps = 0;  // samples per step; steps of the whole run, 0 while unknown
  int virtual_ranks = 1;
  Validations validations;           // cost of one: measured, else a similar job's, else 0
  RescaleCosts costs = kUnmeasured;  // of changing its workers, and of its end

  enum class State { waiting, running, finished, failed, cancelled };
  State state = State::waiting;
  std::string reason;  // why it is in this state
  bool cancel = false;
  double since = 0, ended = 0;  // when it entered this state, and when it ended
  double stopping = 0;          // when it was told to stop, for now or for good; 0: never
  int64_t step = 0;             // steps made
  std::string digest;           // of the final state
  WorkerShape shape;            // shape in which it was started
  int failures = 0;             // in a row, without a step in between
  int64_t failed_at = 0;        // the step at the last failure
  double retry_at = 0;          // earliest time of the next start

  bool over() const { return state != State::waiting && state != State::running; }
};
const char* name_of(JobRecord::State state);

struct SlotRecord {
  Id id = 0;
  std::string source = {}, host = {}, lease = {}, kind = {};  // tools/pool/hosts/source.h
  std::string device = {};                                    // for `train join`: "cpu", or its own GPU, "cuda:0"
  int threads = 1;
  double since = 0, gone = 0;  // gone: 0 while it exists
};

struct ProcessRecord {
  Id id = 0, job = 0;
  bool coordinator = false;
  std::vector<Id> slots = {};  // of a worker
  // See tools/pool/hosts/process.h. "": it is being started, or was when the daemon died.
  std::string handle = {};
  double started = 0, leaving = 0, ended = 0;                  // 0: not yet
  double leave_by = kNever;                                    // when a worker that is `leaving` is killed
  bool registered = false;                                     // its job has accepted it
  int code = 0;                                                // exit code; -1: unknown
  std::string name() const { return fmt::format("w{}", id); }  // a worker's name in its job
};

struct LogLine {
  Id id = 0;
  double time = 0;
  Id job = 0;         // 0: none
  std::string what;   // one word
  std::string where;  // a host; "": none
  std::string reason;
};

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

// The database is damaged; retrying does not help.
struct StoreDamage : Failure {
  using Failure::Failure;
};

class Store {
 public:
  // Creates the directory, accessible to its owner only, and the database if they do not exist; new jobs get numbers
  // above those of existing job directories. ":memory:" is a store without files. Upgrades an older database, unless a
  // daemon runs, which would not understand it. Throws Failure if the file is damaged or not a database.
  explicit Store(const std::filesystem::path& directory);
  // Opens an existing pool. Throws UsageError if there is none.
  static Store open_existing(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path job_directory(Id job) const { return directory_ / "jobs" / std::to_string(job); }

  // in_place(): whether the path still leads to the file that this object has open. put_back() writes the database
  // again if its file was removed; it throws Failure if another file has taken its place.
  bool in_place() const;
  void put_back();

  // Throws StoreDamage with the file and a remedy if `error` means that the database is damaged.
  void check_undamaged(const std::exception& error) const;

  // Runs `change` as one transaction; rolls back if it throws. Must not be nested.
  void transaction(const std::function<void()>& change);

  Id add(JobRecord job);
  void save(const JobRecord& job);  // the fields that change after submission, except `cancel`
  void ask_cancel(Id job);
  std::optional<JobRecord> job(Id id) const;
  std::vector<JobRecord> jobs(bool over_too) const;  // in the order of submission

  Id add(const SlotRecord& slot);
  void lose_slot(Id slot, double now);
  std::vector<SlotRecord> slots(bool gone_too = false) const;

  Id add(const ProcessRecord& process);
  void save(const ProcessRecord& process);
  std::vector<ProcessRecord> processes(bool ended_too = false) const;
  std::vector<ProcessRecord> processes_of(Id job) const;  // including those that have ended

  // Records the speed of a job in a generation; replaces the previous value for the generation.
  void measure(Id job, int64_t generation, const Measurement& measurement);
  // Records that the worker ran out of memory. The record's generation is the negative number of the worker, so that
  // these records sort before those of real generations.
  void measure_out_of_memory(const ProcessRecord& worker, const Measurement& measurement);
  std::vector<Measurement> measurements(Id job) const;                // out of memory first, then by generation
  std::vector<std::vector<Measurement>> measurements_of_all() const;  // by job

  // Records the progress of a job for display; deletes records older than a week.
  void note_progress(double now, Id job, int64_t step);
  struct Progress {
    double time = 0;
    Id job = 0;
    int64_t step = 0;
  };
  std::vector<Progress> progress(double since) const;

  void log(double now, Id job, const std::string& what, const std::string& reason, const std::string& where = "");
  std::vector<LogLine> history(Id job, int64_t most) const;  // the last `most` lines, oldest first; job 0: all jobs

 private:
  Store(const std::filesystem::path& directory, int flags);
  std::vector<JobRecord> select_jobs(const std::string& where, Id id) const;
  std::vector<ProcessRecord> select_processes(const std::string& where, Id job) const;
  std::map<Id, std::vector<Measurement>> select_measurements(const std::string& where, Id job) const;
  std::filesystem::path directory_;
  mutable SQLite::Database db_;
  FileIdentity identity_;
};

}  // namespace elinvar::pool
