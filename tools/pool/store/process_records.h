#pragma once
// The table of processes: coordinators and workers, recorded before they are started. No slot has two workers that have
// not ended.
#include <fmt/format.h>

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

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

class ProcessRecords {
 public:
  explicit ProcessRecords(SQLite::Database& db) : db_(db) {}

  // Both are several statements: call them within a transaction, unless save() is for a process that has not ended.
  Id add(const ProcessRecord& process);     // returns its id
  void save(const ProcessRecord& process);  // frees the slots of a process that has ended
  // In the order of their ids.
  std::vector<ProcessRecord> present() const;   // those that have not ended
  std::vector<ProcessRecord> of(Id job) const;  // including those that have ended
  std::vector<ProcessRecord> all() const;

 private:
  std::vector<ProcessRecord> select(const std::string& where, Id job) const;
  SQLite::Database& db_;
};

}  // namespace elinvar::pool
