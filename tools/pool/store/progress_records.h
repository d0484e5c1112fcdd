#pragma once
// The table of progress: the step of each job over time, for display.
#include <SQLiteCpp/SQLiteCpp.h>

#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct ProgressRecord {
  double time = 0;
  Id job = 0;
  int64_t step = 0;
};

class ProgressRecords {
 public:
  explicit ProgressRecords(SQLite::Database& db) : db_(db) {}

  // Adds a record and deletes those that are a week older. Two statements: call it within a transaction.
  void add(const ProgressRecord& record);
  std::vector<ProgressRecord> since(double time) const;  // oldest first

 private:
  SQLite::Database& db_;
};

}  // namespace elinvar::pool
