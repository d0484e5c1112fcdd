#pragma once
// DIR/pool.db: all that a pool knows, in SQLite. Every change is a transaction: a process that is killed at any moment
// leaves the state before the change or after it. The commands read and write the database whether a daemon runs or
// not: `submit` adds a job, `cancel` sets a flag, and the daemon finds both. Only its owner may read it.
//
//   jobs          what was asked for, how far it is, how it ended
//   slots         every slot that there ever was; `gone` is set when its machine is taken away. Ids are never reused
//   processes     coordinators and workers, from the decision to start them on. A worker's slots are in `places`: no
//                 slot has two workers that have not ended
//   measurements  how fast jobs ran on what
//   progress      how far they were, now and then
//   log           what was decided and what happened, with reasons
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

double wall_clock();  // seconds since 1970: the clock of all times in the store

struct JobRecord {
  // The job as submitted.
  Id id = 0;
  std::string name;
  std::string config;                  // text of the configuration
  std::vector<std::string> overrides;  // "table.key=value"
  int min_workers = 1, max_workers = 1, fixed_workers = 1, priority = 0;
  std::vector<std::string> kinds;
  double submitted = 0, deadline = kNever;
  int64_t batch = 1, steps = 0;  // samples a step; steps in all, 0 as long as they are not known
  int virtual_ranks = 1;
  Validations validations;           // what one is worth: as was seen, else of a job like it, else 0
  RescaleCosts costs = kUnmeasured;  // changes of its workers, and its end

  enum class State { waiting, running, finished, failed, cancelled };
  State state = State::waiting;
  std::string reason;  // why it is in this state
  bool cancel = false;
  double since = 0, ended = 0;  // in this state
  double stopping = 0;          // it has been told to stop, for now or for ever, since then; 0: it has not
  int64_t step = 0;             // that is made
  std::string digest;           // of the last state
  WorkerShape shape;            // in which it was started
  int failures = 0;             // in a row without a step in between
  int64_t failed_at = 0;        // the step at the last failure
  double retry_at = 0;          // it may start again then

  bool over() const { return state != State::waiting && state != State::running; }
};
const char* name_of(JobRecord::State state);

struct SlotRecord {
  Id id = 0;
  std::string source = {}, host = {}, lease = {}, kind = {};  // tools/pool/hosts/source.h
  std::string device = {};                                    // for `train join`: "cpu", or its own GPU, "cuda:0"
  int threads = 1;
  double since = 0, gone = 0;  // 0: it is there
};

struct ProcessRecord {
  Id id = 0, job = 0;
  bool coordinator = false;
  std::vector<Id> slots = {};  // of a worker
  std::string handle = {};     // tools/pool/daemon/process.h; "": it is being started, or was when the daemon died
  double started = 0, leaving = 0, ended = 0;                  // 0: not yet
  double leave_by = kNever;                                    // a worker that is `leaving` is killed then
  bool registered = false;                                     // its job knows it
  int code = 0;                                                // with which it ended; -1: nobody knows
  std::string name() const { return fmt::format("w{}", id); }  // of a worker, for its job
};

struct LogLine {
  Id id = 0;
  double time = 0;
  Id job = 0;         // 0: none
  std::string what;   // one word
  std::string where;  // a host; "": none
  std::string reason;
};

// The identity of the file that a name leads to now; zeros if there is none.
struct FileIdentity {
  uint64_t device = 0, number = 0;
  static FileIdentity of(const std::filesystem::path& path);
  bool operator==(const FileIdentity&) const = default;
};

// The lock that a pool's daemon holds while it lives. A command that checks for a daemon holds it for a moment.
class DaemonLock {
 public:
  static std::optional<DaemonLock> take(const std::filesystem::path& directory);  // nothing: there is a daemon
  // Takes the lock again if its file was removed, so that no second daemon gets it. False if another daemon has it.
  bool keep();

 private:
  DaemonLock(const std::filesystem::path& directory, File file);
  std::filesystem::path directory_;
  std::unique_ptr<File> file_;
  FileIdentity identity_;
};
bool daemon_runs(const std::filesystem::path& directory);  // somebody holds it

// The database is damaged. Trying again does not help.
struct StoreDamage : Failure {
  using Failure::Failure;
};

class Store {
 public:
  // Makes the directory, for its owner alone, and the database if there is none; jobs get numbers after those whose
  // directories are there nevertheless. ":memory:" is a store without files. One of an older version is brought up to
  // date, unless a daemon is at work, which would not understand it. Failure if the file is damaged, or no database.
  explicit Store(const std::filesystem::path& directory);
  // Only to look: UsageError if there is no pool.
  static Store open_existing(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path job_directory(Id job) const { return directory_ / "jobs" / std::to_string(job); }

  // in_place(): whether the path still leads to the file that this object writes to. put_back() writes the database
  // again if its file was removed; Failure if there is another file in its place.
  bool in_place() const;
  void put_back();

  // Throws StoreDamage, with the file and what to do, if a query failed with `error` because the database is damaged.
  void check_undamaged(const std::exception& error) const;

  // All that `change` does is kept, or nothing of it where it throws. Not to be nested.
  void transaction(const std::function<void()>& change);

  Id add(JobRecord job);
  void save(const JobRecord& job);  // what changes after the submission, but for `cancel`
  void ask_cancel(Id job);
  std::optional<JobRecord> job(Id id) const;
  std::vector<JobRecord> jobs(bool over_too) const;  // in the order of submission

  Id add(const SlotRecord& slot);
  void lose_slot(Id slot, double now);
  std::vector<SlotRecord> slots(bool gone_too = false) const;

  Id add(const ProcessRecord& process);
  void save(const ProcessRecord& process);
  std::vector<ProcessRecord> processes(bool ended_too = false) const;
  std::vector<ProcessRecord> processes_of(Id job) const;  // all that it has had

  // How a job runs in a generation of its own, which replaces what was said of that generation before.
  void measure(Id job, int64_t generation, const Measurement& measurement);
  // That the worker ran out of memory. On file these have the negative number of the worker as their generation, so
  // that they come before all that were measured in a generation.
  void measure_out_of_memory(const ProcessRecord& worker, const Measurement& measurement);
  std::vector<Measurement> measurements(Id job) const;                // those without memory first, then by generation
  std::vector<std::vector<Measurement>> measurements_of_all() const;  // by job

  // How far a job is, now and then, for those who look: what is older than a week goes.
  void note_progress(double now, Id job, int64_t step);
  struct Progress {
    double time = 0;
    Id job = 0;
    int64_t step = 0;
  };
  std::vector<Progress> progress(double since) const;

  void log(double now, Id job, const std::string& what, const std::string& reason, const std::string& where = "");
  std::vector<LogLine> history(Id job, int64_t most) const;  // the last ones, oldest first; job 0: of all

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
