#include "tools/pool/store/job_records.h"

#include <nlohmann/json.hpp>

#include "tools/pool/store/statement.h"

namespace elinvar::pool {

using Json = nlohmann::json;
using SQLite::Statement;

namespace {

std::string json_text(const std::vector<std::string>& words) {
  return Json(words).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const RescaleCosts& seen) {
  Json json = Json::object();
  for (const NamedCost& cost : kCosts)
    if (seen.*cost.seconds > 0) json[cost.name] = seen.*cost.seconds;
  return json.dump();
}

RescaleCosts costs_from(const std::string& text) {
  const Json json = Json::parse(text);
  RescaleCosts seen = kUnmeasured;
  for (const NamedCost& cost : kCosts) seen.*cost.seconds = json.value(cost.name, 0.0);
  return seen;
}

}  // namespace

const char* name_of(JobRecord::State state) {
  constexpr const char* kNames[] = {"waiting", "running", "finished", "failed", "cancelled"};
  return kNames[static_cast<int>(state)];
}

Id JobRecords::add(const JobRecord& j) {
  bound(
      db_,
      "INSERT INTO jobs (name, config, overrides, min_workers, max_workers, fixed_workers, priority, kinds, "
      "submitted, deadline, batch, steps, virtual_ranks, state, reason, since, ended, step, digest, width, recompute, "
      "failures, failed_at, retry_at, validate_every) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '', ?, 0, 0, "
      "'', "
      "1, 0, 0, 0, 0, ?)",
      j.name, j.config, json_text(j.overrides), j.min_workers, j.max_workers, j.fixed_workers, j.priority,
      json_text(j.kinds), j.submitted, j.deadline, j.batch, j.steps, j.virtual_ranks, j.submitted, j.validations.every)
      .exec();
  return db_.getLastInsertRowid();
}

void JobRecords::save(const JobRecord& j) {
  bound(db_,
        "UPDATE jobs SET state = ?, reason = ?, since = ?, ended = ?, stopping = ?, steps = ?, step = ?, digest = ?, "
        "width = ?, "
        "recompute = ?, failures = ?, failed_at = ?, retry_at = ?, validation = ?, took = ? "
        "WHERE id = ?",
        static_cast<int>(j.state), j.reason, j.since, j.ended, j.stopping, j.steps, j.step, j.digest, j.shape.width,
        static_cast<int>(j.shape.recompute), j.failures, j.failed_at, j.retry_at, j.validations.samples,
        json_text(j.costs), j.id)
      .exec();
}

void JobRecords::ask_cancel(Id job) { bound(db_, "UPDATE jobs SET cancel = 1 WHERE id = ?", job).exec(); }

std::vector<JobRecord> JobRecords::select(const std::string& where, Id id) const {
  Statement row(db_,
                "SELECT id, name, config, overrides, min_workers, max_workers, fixed_workers, priority, kinds, "
                "submitted, deadline, batch, steps, virtual_ranks, state, reason, cancel, since, ended, stopping, "
                "step, digest, width, "
                "recompute, failures, failed_at, retry_at, validate_every, validation, took FROM jobs " +
                    where + " ORDER BY id");
  if (id != 0) row.bind(1, id);
  std::vector<JobRecord> jobs;
  while (row.executeStep()) {
    JobRecord j;
    int column = 0;
    const auto next = [&] { return row.getColumn(column++); };
    j.id = next().getInt64();
    j.name = next().getString();
    j.config = next().getString();
    j.overrides = Json::parse(next().getString()).get<std::vector<std::string>>();
    j.min_workers = next().getInt();
    j.max_workers = next().getInt();
    j.fixed_workers = next().getInt();
    j.priority = next().getInt();
    j.kinds = Json::parse(next().getString()).get<std::vector<std::string>>();
    j.submitted = next().getDouble();
    j.deadline = next().getDouble();
    j.batch = next().getInt64();
    j.steps = next().getInt64();
    j.virtual_ranks = next().getInt();
    j.state = static_cast<JobRecord::State>(next().getInt());
    j.reason = next().getString();
    j.cancel = next().getInt() != 0;
    j.since = next().getDouble();
    j.ended = next().getDouble();
    j.stopping = next().getDouble();
    j.step = next().getInt64();
    j.digest = next().getString();
    j.shape.width = next().getInt();
    j.shape.recompute = next().getInt() != 0;
    j.failures = next().getInt();
    j.failed_at = next().getInt64();
    j.retry_at = next().getDouble();
    j.validations.every = next().getInt64();
    j.validations.samples = next().getDouble();
    j.costs = costs_from(next().getString());
    jobs.push_back(std::move(j));
  }
  return jobs;
}

std::optional<JobRecord> JobRecords::find(Id id) const {
  std::vector<JobRecord> found = select("WHERE id = ?", id);
  if (found.empty()) return std::nullopt;
  return found.front();
}

std::vector<JobRecord> JobRecords::open() const { return select("WHERE state < 2", 0); }

std::vector<JobRecord> JobRecords::all() const { return select("", 0); }

}  // namespace elinvar::pool
