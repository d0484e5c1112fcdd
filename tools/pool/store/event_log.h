#pragma once
// The table `log`: decisions and events, with reasons.
#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct LogLine {
  Id id = 0;
  double time = 0;
  Id job = 0;         // 0: none
  std::string what;   // one word
  std::string where;  // a host; "": none
  std::string reason;
};

class EventLog {
 public:
  explicit EventLog(SQLite::Database& db) : db_(db) {}

  void add(double now, Id job, const std::string& what, const std::string& reason, const std::string& where = "");
  std::vector<LogLine> last(Id job, int64_t most) const;  // the last `most` lines, oldest first; job 0: all jobs

 private:
  SQLite::Database& db_;
};

}  // namespace elinvar::pool
