#include "tools/pool/store/event_log.h"

#include "tools/pool/store/statement.h"

namespace elinvar::pool {

void EventLog::add(double now, Id job, const std::string& what, const std::string& reason, const std::string& where) {
  bound(db_, "INSERT INTO log (time, job, what, host, reason) VALUES (?, ?, ?, ?, ?)", now, job, what, where, reason)
      .exec();
}

std::vector<LogLine> EventLog::last(Id job, int64_t most) const {
  SQLite::Statement row(db_,
                        "SELECT id, time, job, what, host, reason FROM (SELECT * FROM log WHERE ?1 = 0 OR job = ?1 "
                        "ORDER BY id DESC LIMIT ?2) ORDER BY id");
  row.bind(1, job);
  row.bind(2, most);
  std::vector<LogLine> lines;
  while (row.executeStep())
    lines.push_back({.id = row.getColumn(0).getInt64(),
                     .time = row.getColumn(1).getDouble(),
                     .job = row.getColumn(2).getInt64(),
                     .what = row.getColumn(3).getString(),
                     .where = row.getColumn(4).getString(),
                     .reason = row.getColumn(5).getString()});
  return lines;
}

}  // namespace elinvar::pool
