#include "tools/pool/store/slot_records.h"

#include "tools/pool/store/statement.h"

namespace elinvar::pool {

using SQLite::Statement;

Id SlotRecords::add(const SlotRecord& s) {
  bound(db_,
        "INSERT INTO slots (source, host, lease, kind, device, threads, since, gone) VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
        s.source, s.host, s.lease, s.kind, s.device, s.threads, s.since)
      .exec();
  return db_.getLastInsertRowid();
}

void SlotRecords::lose(Id slot, double now) { bound(db_, "UPDATE slots SET gone = ? WHERE id = ?", now, slot).exec(); }

std::vector<SlotRecord> SlotRecords::select(const std::string& where) const {
  Statement row(
      db_, "SELECT id, source, host, lease, kind, device, threads, since, gone FROM slots " + where + " ORDER BY id");
  std::vector<SlotRecord> slots;
  while (row.executeStep())
    slots.push_back({.id = row.getColumn(0).getInt64(),
                     .source = row.getColumn(1).getString(),
                     .host = row.getColumn(2).getString(),
                     .lease = row.getColumn(3).getString(),
                     .kind = row.getColumn(4).getString(),
                     .device = row.getColumn(5).getString(),
                     .threads = row.getColumn(6).getInt(),
                     .since = row.getColumn(7).getDouble(),
                     .gone = row.getColumn(8).getDouble()});
  return slots;
}

std::vector<SlotRecord> SlotRecords::present() const { return select("WHERE gone = 0"); }

std::vector<SlotRecord> SlotRecords::all() const { return select(""); }

}  // namespace elinvar::pool
