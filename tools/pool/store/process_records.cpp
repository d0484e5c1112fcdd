#include "tools/pool/store/process_records.h"

#include "tools/pool/store/statement.h"

namespace elinvar::pool {

using SQLite::Statement;

Id ProcessRecords::add(const ProcessRecord& p) {
  bound(db_,
        "INSERT INTO processes (job, coordinator, handle, started, leaving, ended, leave_by, met, code) "
        "VALUES (?, ?, ?, ?, 0, 0, ?, 0, 0)",
        p.job, static_cast<int>(p.coordinator), p.handle, p.started, p.leave_by)
      .exec();
  const Id id = db_.getLastInsertRowid();
  for (const Id slot : p.slots) bound(db_, "INSERT INTO places (process, slot) VALUES (?, ?)", id, slot).exec();
  return id;
}

void ProcessRecords::save(const ProcessRecord& p) {
  bound(db_, "UPDATE processes SET handle = ?, leaving = ?, ended = ?, leave_by = ?, met = ?, code = ? WHERE id = ?",
        p.handle, p.leaving, p.ended, p.leave_by, static_cast<int>(p.registered), p.code, p.id)
      .exec();
  if (p.ended > 0) bound(db_, "UPDATE places SET free = 1 WHERE process = ?", p.id).exec();
}

std::vector<ProcessRecord> ProcessRecords::select(const std::string& where, Id job) const {
  Statement row(
      db_, "SELECT id, job, coordinator, handle, started, leaving, ended, leave_by, met, code FROM processes " + where +
               " ORDER BY id");
  if (job != 0) row.bind(1, job);
  Statement place(db_, "SELECT slot FROM places WHERE process = ? ORDER BY slot");
  std::vector<ProcessRecord> processes;
  while (row.executeStep()) {
    ProcessRecord p{.id = row.getColumn(0).getInt64(),
                    .job = row.getColumn(1).getInt64(),
                    .coordinator = row.getColumn(2).getInt() != 0,
                    .slots = {},
                    .handle = row.getColumn(3).getString(),
                    .started = row.getColumn(4).getDouble(),
                    .leaving = row.getColumn(5).getDouble(),
                    .ended = row.getColumn(6).getDouble(),
                    .leave_by = row.getColumn(7).getDouble(),
                    .registered = row.getColumn(8).getInt() != 0,
                    .code = row.getColumn(9).getInt()};
    place.reset();
    place.bind(1, p.id);
    while (place.executeStep()) p.slots.push_back(place.getColumn(0).getInt64());
    processes.push_back(std::move(p));
  }
  return processes;
}

std::vector<ProcessRecord> ProcessRecords::present() const { return select("WHERE ended = 0", 0); }

std::vector<ProcessRecord> ProcessRecords::of(Id job) const { return select("WHERE job = ?", job); }

std::vector<ProcessRecord> ProcessRecords::all() const { return select("", 0); }

}  // namespace elinvar::pool
