#pragma once
// DIR/pool.db: the state of a pool, in SQLite. The commands read and write the database whether a daemon runs or not:
// `submit` adds a job, `cancel` sets a flag, and the daemon finds both.
#include <filesystem>

#include "tools/pool/store/event_log.h"
#include "tools/pool/store/job_records.h"
#include "tools/pool/store/measurement_records.h"
#include "tools/pool/store/process_records.h"
#include "tools/pool/store/progress_records.h"
#include "tools/pool/store/slot_records.h"
#include "tools/pool/store/store_file.h"

namespace elinvar::pool {

double wall_clock();  // seconds since 1970; the clock of all times in the store

class Store : public StoreFile {
 public:
  explicit Store(const std::filesystem::path& directory, Open how = Open::kOrCreate) : StoreFile(directory, how) {}
  static Store open_existing(const std::filesystem::path& directory) { return Store(directory, Open::kExisting); }

  JobRecords jobs{db()};
  SlotRecords slots{db()};
  ProcessRecords processes{db()};
  MeasurementRecords measurements{db()};
  ProgressRecords progress{db()};
  EventLog log{db()};
};

}  // namespace elinvar::pool
