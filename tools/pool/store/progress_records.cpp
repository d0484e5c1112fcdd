#include "tools/pool/store/progress_records.h"

#include "tools/pool/store/statement.h"

namespace elinvar::pool {

constexpr double kProgressKept = 7 * 86400;  // seconds

void ProgressRecords::add(const ProgressRecord& p) {
  bound(db_, "INSERT INTO progress VALUES (?, ?, ?)", p.time, p.job, p.step).exec();
  bound(db_, "DELETE FROM progress WHERE time < ?", p.time - kProgressKept).exec();
}

std::vector<ProgressRecord> ProgressRecords::since(double time) const {
  SQLite::Statement row(db_, "SELECT time, job, step FROM progress WHERE time >= ? ORDER BY time");
  row.bind(1, time);
  std::vector<ProgressRecord> all;
  while (row.executeStep())
    all.push_back({row.getColumn(0).getDouble(), row.getColumn(1).getInt64(), row.getColumn(2).getInt64()});
  return all;
}

}  // namespace elinvar::pool
