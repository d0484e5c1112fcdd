#pragma once
// The table of jobs: the request, the progress and the result of each.
#include <SQLiteCpp/SQLiteCpp.h>

#include <optional>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

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

class JobRecords {
 public:
  explicit JobRecords(SQLite::Database& db) : db_(db) {}

  Id add(const JobRecord& job);     // returns its number
  void save(const JobRecord& job);  // the fields that change after submission, except `cancel`
  void ask_cancel(Id job);
  std::optional<JobRecord> find(Id id) const;
  // In the order of submission.
  std::vector<JobRecord> open() const;  // those that are not over
  std::vector<JobRecord> all() const;

 private:
  std::vector<JobRecord> select(const std::string& where, Id id) const;
  SQLite::Database& db_;
};

}  // namespace elinvar::pool
