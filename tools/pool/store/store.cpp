#include "tools/pool/store/store.h"

#include <chrono>

#include "tensor/base/check.h"

namespace elinvar::pool {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using SQLite::Statement;

namespace {

constexpr double kProgressKept = 7 * 86400;

template <class... Values>
Statement bound(SQLite::Database& db, const char* sql, const Values&... values) {
  Statement statement(db, sql);
  int index = 0;
  (statement.bind(++index, values), ...);
  return statement;
}

std::string text_of(const std::vector<std::string>& words) {
  return Json(words).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_of(const RescaleCosts& seen) {
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

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

const char* name_of(JobRecord::State state) {
  constexpr const char* kNames[] = {"waiting", "running", "finished", "failed", "cancelled"};
  return kNames[static_cast<int>(state)];
}

void Store::transaction(const std::function<void()>& change) try {
  SQLite::Transaction all(db_, SQLite::TransactionBehavior::IMMEDIATE);
  change();
  all.commit();
} catch (const SQLite::Exception& error) {
  check_undamaged(error);
  fail("{}: {}", (directory_ / "pool.db").string(), error.what());
}

Id Store::add(JobRecord j) {
  bound(
      db_,
      "INSERT INTO jobs (name, config, overrides, min_workers, max_workers, fixed_workers, priority, kinds, "
      "submitted, deadline, batch, steps, virtual_ranks, state, reason, since, ended, step, digest, width, recompute, "
      "failures, failed_at, retry_at, validate_every) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '', ?, 0, 0, "
      "'', "
      "1, 0, 0, 0, 0, ?)",
      j.name, j.config, text_of(j.overrides), j.min_workers, j.max_workers, j.fixed_workers, j.priority,
      text_of(j.kinds), j.submitted, j.deadline, j.batch, j.steps, j.virtual_ranks, j.submitted, j.validations.every)
      .exec();
  return db_.getLastInsertRowid();
}

void Store::save(const JobRecord& j) {
  bound(db_,
        "UPDATE jobs SET state = ?, reason = ?, since = ?, ended = ?, stopping = ?, steps = ?, step = ?, digest = ?, "
        "width = ?, "
        "recompute = ?, failures = ?, failed_at = ?, retry_at = ?, validation = ?, took = ? "
        "WHERE id = ?",
        static_cast<int>(j.state), j.reason, j.since, j.ended, j.stopping, j.steps, j.step, j.digest, j.shape.width,
        static_cast<int>(j.shape.recompute), j.failures, j.failed_at, j.retry_at, j.validations.samples,
        text_of(j.costs), j.id)
      .exec();
}

void Store::ask_cancel(Id job) { bound(db_, "UPDATE jobs SET cancel = 1 WHERE id = ?", job).exec(); }

std::vector<JobRecord> Store::select_jobs(const std::string& where, Id id) const {
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

std::optional<JobRecord> Store::job(Id id) const {
  std::vector<JobRecord> found = select_jobs("WHERE id = ?", id);
  if (found.empty()) return std::nullopt;
  return found.front();
}

std::vector<JobRecord> Store::jobs(bool over_too) const { return select_jobs(over_too ? "" : "WHERE state < 2", 0); }

Id Store::add(const SlotRecord& s) {
  bound(db_,
        "INSERT INTO slots (source, host, lease, kind, device, threads, since, gone) VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
        s.source, s.host, s.lease, s.kind, s.device, s.threads, s.since)
      .exec();
  return db_.getLastInsertRowid();
}

void Store::lose_slot(Id slot, double now) { bound(db_, "UPDATE slots SET gone = ? WHERE id = ?", now, slot).exec(); }

std::vector<SlotRecord> Store::slots(bool gone_too) const {
  Statement row(db_, std::string("SELECT id, source, host, lease, kind, device, threads, since, gone FROM slots ") +
                         (gone_too ? "" : "WHERE gone = 0 ") + "ORDER BY id");
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

Id Store::add(const ProcessRecord& p) {
  bound(db_,
        "INSERT INTO processes (job, coordinator, handle, started, leaving, ended, leave_by, met, code) "
        "VALUES (?, ?, ?, ?, 0, 0, ?, 0, 0)",
        p.job, static_cast<int>(p.coordinator), p.handle, p.started, p.leave_by)
      .exec();
  const Id id = db_.getLastInsertRowid();
  for (const Id slot : p.slots) bound(db_, "INSERT INTO places (process, slot) VALUES (?, ?)", id, slot).exec();
  return id;
}

void Store::save(const ProcessRecord& p) {
  bound(db_, "UPDATE processes SET handle = ?, leaving = ?, ended = ?, leave_by = ?, met = ?, code = ? WHERE id = ?",
        p.handle, p.leaving, p.ended, p.leave_by, static_cast<int>(p.registered), p.code, p.id)
      .exec();
  if (p.ended > 0) bound(db_, "UPDATE places SET free = 1 WHERE process = ?", p.id).exec();
}

std::vector<ProcessRecord> Store::processes(bool ended_too) const {
  return select_processes(ended_too ? "" : "WHERE ended = 0", 0);
}

std::vector<ProcessRecord> Store::processes_of(Id job) const { return select_processes("WHERE job = ?", job); }

std::vector<ProcessRecord> Store::select_processes(const std::string& where, Id job) const {
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

void Store::measure(Id job, int64_t generation, const Measurement& m) {
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

void Store::measure_out_of_memory(const ProcessRecord& worker, const Measurement& measurement) {
  measure(worker.job, -worker.id, measurement);
}

std::map<Id, std::vector<Measurement>> Store::select_measurements(const std::string& where, Id job) const {
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

std::vector<Measurement> Store::measurements(Id job) const { return select_measurements("WHERE job = ?", job)[job]; }

std::vector<std::vector<Measurement>> Store::measurements_of_all() const {
  std::vector<std::vector<Measurement>> all;
  for (auto& [job, measured] : select_measurements("", 0)) all.push_back(std::move(measured));
  return all;
}

void Store::note_progress(double now, Id job, int64_t step) {
  transaction([&] {
    bound(db_, "INSERT INTO progress VALUES (?, ?, ?)", now, job, step).exec();
    bound(db_, "DELETE FROM progress WHERE time < ?", now - kProgressKept).exec();
  });
}

std::vector<Store::Progress> Store::progress(double since) const {
  Statement row(db_, "SELECT time, job, step FROM progress WHERE time >= ? ORDER BY time");
  row.bind(1, since);
  std::vector<Progress> all;
  while (row.executeStep())
    all.push_back({row.getColumn(0).getDouble(), row.getColumn(1).getInt64(), row.getColumn(2).getInt64()});
  return all;
}

void Store::log(double now, Id job, const std::string& what, const std::string& reason, const std::string& where) {
  bound(db_, "INSERT INTO log (time, job, what, host, reason) VALUES (?, ?, ?, ?, ?)", now, job, what, where, reason)
      .exec();
}

std::vector<LogLine> Store::history(Id job, int64_t most) const {
  Statement row(db_,
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
