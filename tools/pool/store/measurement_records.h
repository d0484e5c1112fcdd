#pragma once
// The table of measurements: the speed of jobs on their allocations.
#include <SQLiteCpp/SQLiteCpp.h>

#include <map>
#include <string>
#include <vector>

#include "tools/pool/store/process_records.h"

namespace elinvar::pool {

class MeasurementRecords {
 public:
  explicit MeasurementRecords(SQLite::Database& db) : db_(db) {}

  // Records the speed of a job in a generation; replaces the previous value for the generation.
  void record(Id job, int64_t generation, const Measurement& measurement);
  // Records that the worker ran out of memory. The record's generation is the negative number of the worker, so that
  // these records sort before those of real generations.
  void record_out_of_memory(const ProcessRecord& worker, const Measurement& measurement);

  std::vector<Measurement> of(Id job) const;          // out of memory first, then by generation
  std::vector<std::vector<Measurement>> all() const;  // by job

 private:
  std::map<Id, std::vector<Measurement>> select(const std::string& where, Id job) const;
  SQLite::Database& db_;
};

}  // namespace elinvar::pool
