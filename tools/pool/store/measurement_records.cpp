#include "tools/pool/store/measurement_records.h"

#include <nlohmann/json.hpp>

#include "tools/pool/store/statement.h"

namespace elinvar::pool {

using Json = nlohmann::json;
using SQLite::Statement;

void MeasurementRecords::record(Id job, int64_t generation, const Measurement& m) {
  // The prediction stays, even if the daemon was restarted since and no longer knows it.
  bound(db_,
        "INSERT INTO measurements (job, generation, workers, width, recompute, seconds, rate, predicted, doubt, trial) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job, generation) DO UPDATE SET workers = excluded.workers, "
        "width = excluded.width, recompute = excluded.recompute, seconds = excluded.seconds, rate = excluded.rate, "
        "doubt = iif(excluded.predicted > 0, excluded.doubt, doubt), trial = max(trial, excluded.trial), "
        "predicted = iif(excluded.predicted > 0, excluded.predicted, predicted)",
        job, generation, Json(m.workers).dump(), m.shape.width, static_cast<int>(m.shape.recompute), m.seconds, m.rate,
        m.predicted, m.predicted_error, static_cast<int>(m.trial))
      .exec();
}

void MeasurementRecords::record_out_of_memory(const ProcessRecord& worker, const Measurement& measurement) {
  record(worker.job, -worker.id, measurement);
}

std::map<Id, std::vector<Measurement>> MeasurementRecords::select(const std::string& where, Id job) const {
  Statement row(
      db_, "SELECT job, workers, width, recompute, seconds, rate, predicted, doubt, trial FROM measurements " + where +
               " ORDER BY job, generation");
  if (job != 0) row.bind(1, job);
  std::map<Id, std::vector<Measurement>> all;
  while (row.executeStep())
    all[row.getColumn(0).getInt64()].push_back(
        {.workers = Json::parse(row.getColumn(1).getString()).get<Allocation>(),
         .shape = {.width = row.getColumn(2).getInt(), .recompute = row.getColumn(3).getInt() != 0},
         .seconds = row.getColumn(4).getDouble(),
         .rate = row.getColumn(5).getDouble(),
         .predicted = row.getColumn(6).getDouble(),
         .predicted_error = row.getColumn(7).getDouble(),
         .trial = row.getColumn(8).getInt() != 0});
  return all;
}

std::vector<Measurement> MeasurementRecords::of(Id job) const { return select("WHERE job = ?", job)[job]; }

std::vector<std::vector<Measurement>> MeasurementRecords::all() const {
  std::vector<std::vector<Measurement>> all;
  for (auto& [job, measured] : select("", 0)) all.push_back(std::move(measured));
  return all;
}

}  // namespace elinvar::pool
