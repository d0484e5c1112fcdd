#include "tests/pool/fake_world.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar::pool::test {

namespace {

constexpr double kStart = 2, kLeave = 1, kStop = 2, kTakeover = 7, kCheckpoint = 60;  // seconds

}  // namespace

void FakeWorld::call() {
  if (calls_left_ < 0) return;
  if (calls_left_-- == 0) throw SchedulerDies();
}

std::string FakeWorld::start(const std::vector<std::string>& words, const std::filesystem::path& log) {
  call();
  Process process{.words = words, .name = {}};
  process.job = std::stol(log.parent_path().filename().string());
  process.coordinator = words.at(1) == "run";
  if (!process.coordinator) process.name = words.back();
  if (const auto threads = std::find(words.begin(), words.end(), "--threads"); threads != words.end())
    process.threads = std::stoi(*std::next(threads));
  process.born = now_;
  Run& run = runs_[process.job];
  if (process.coordinator) {
    if (run.coordinator) {  // the run directory is locked
      process.running = false;
      process.code = 2;
    } else if (coordinator_fails) {
      process.running = false;
      process.code = *coordinator_fails;
      ++run.starts;
    } else {
      run.coordinator = true;
      run.takeover = run.stops = kNever;
      run.step = run.saved;  // the newest checkpoint
      run.status.result.clear();
      ++run.starts;
    }
  } else if (fails_at_once && (fails_of == 0 || fails_of == process.job)) {
    process.running = false;
    process.code = *fails_at_once;
  }
  const std::string handle = std::to_string(++next_) + ":0";
  processes_[handle] = process;
  call();  // it runs, and is not recorded yet
  return handle;
}

std::string FakeWorld::find(const std::vector<std::string>& words) {
  for (const auto& [handle, p] : processes_)
    if (p.running && std::search(p.words.begin(), p.words.end(), words.begin(), words.end()) != p.words.end())
      return handle;
  return "";
}

ProcessState FakeWorld::state(const std::string& handle) {
  const auto found = processes_.find(handle);
  if (found == processes_.end()) return {.running = false, .code = -1};
  return {.running = found->second.running, .code = found->second.code};
}

void FakeWorld::kill(const std::string& handle) {
  call();
  if (processes_.contains(handle)) end(processes_[handle], 137);
}

void FakeWorld::end(Process& p, int code) {
  if (!p.running) return;
  p.running = p.member = false;
  p.code = code;
  Run& run = runs_[p.job];
  if (p.coordinator) {
    run.coordinator = false;
    run.takeover = members(p.job).empty() ? kNever : now_ + kTakeover;
  } else if (members(p.job).empty()) {
    run.step = run.saved;  // no worker has the state
    if (run.coordinator && code != 0) over(p.job, "failed");
    run.takeover = kNever;
  }
}

std::vector<FakeWorld::Process*> FakeWorld::members(Id job) {
  std::vector<Process*> all;
  for (auto& [handle, p] : processes_)
    if (p.job == job && p.running && p.member) all.push_back(&p);
  return all;
}

void FakeWorld::over(Id job, const std::string& result) {
  Run& run = runs_[job];
  run.status.result = result;
  run.status.computed_at = now_;
  run.status.digest = "d" + std::to_string(job);
  if (result != "failed") run.saved = run.step;
  run.coordinator = false;
  run.takeover = run.stops = kNever;
  for (auto& [handle, p] : processes_)
    if (p.job == job && p.running && (p.coordinator || p.member)) {
      p.running = p.member = false;
      p.code = result == "failed" ? 3 : 0;
    }
}

void FakeWorld::advance(double seconds) {
  now_ += seconds;
  for (auto& [handle, p] : processes_) {
    if (!p.running || p.coordinator) continue;
    if (!p.member && now_ - p.born >= kStart && runs_[p.job].coordinator) {
      p.member = true;
      runs_[p.job].status.registered.insert(p.name);
    }
  }
  for (auto& [job, run] : runs_) {
    const std::optional<JobRecord> record = store_.jobs.find(job);
    std::vector<Process*> present = members(job);
    if (now_ >= run.takeover && !present.empty()) {
      run.coordinator = true;
      run.takeover = kNever;
    }
    // The last worker that leaves saves a checkpoint.
    const bool all_leave = !present.empty() && std::all_of(present.begin(), present.end(),
                                                           [&](const Process* p) { return p->leaves <= now_; });
    if (run.coordinator && (now_ >= run.stops || all_leave)) {
      over(job, "interrupted");
      continue;
    }
    for (Process* p : present)
      if (p->leaves <= now_) end(*p, 0);
    present = members(job);
    int threads = 0;
    for (const Process* p : present) threads += p->threads;
    const double rate =
        present.empty() ? 0 : steps_a_second * threads / (1 + tax * static_cast<double>(present.size() - 1));
    run.step += seconds * rate;
    if (run.step - run.saved >= kCheckpoint * steps_a_second) run.saved = run.step;
    const auto steps = static_cast<double>(record->steps);
    if (run.step >= steps) run.step = steps;
    if (run.coordinator && run.step >= steps && !present.empty()) over(job, "finished");
    if (run.status.workers != static_cast<int>(present.size())) {
      ++run.status.generation;
      run.status.measured_steps = 0;
      run.status.measured_seconds = 0;
    } else if (!present.empty()) {
      run.status.measured_seconds += seconds;
      run.status.measured_steps = static_cast<int64_t>(run.status.measured_seconds * rate);
    }
    run.status.workers = static_cast<int>(present.size());
    if (present.empty() || steps_a_second == 0) continue;
    // The first step of a generation, and its newest one.
    std::vector<StepRecord>& turns = run.status.turns;
    const bool fresh = turns.empty() || turns.back().generation != run.status.generation;
    if (fresh) turns.push_back({now_, run.status.workers, run.status.generation});
    if (fresh) turns.push_back(turns.back());
    else turns.back().time = now_;
  }
}

const RunStatus& FakeWorld::status(Id job, double) {
  if (job == unreadable) throw Failure("it cannot be read");
  Run& run = runs_[job];
  run.status.alive = run.coordinator;
  run.status.members.clear();
  for (const Process* p : members(job)) run.status.members.insert(p->name);
  run.status.endpoint = "tcp://127.0.0.1:1";
  run.status.step = static_cast<int64_t>(run.step);
  return run.status;
}

void FakeWorld::request(Id job, const std::vector<std::string>& words) {
  call();
  if (!runs_[job].coordinator) return;
  if (words.at(0) == "stop") {
    if (members(job).empty()) return;  // "the job is still starting"
    runs_[job].stops = std::min(runs_[job].stops, now_ + kStop);
    return;
  }
  for (Process* p : members(job))
    if (p->name == words.at(1)) p->leaves = std::min(p->leaves, now_ + kLeave);
}

void FakeWorld::kill_worker() {
  std::vector<Process*> alive;
  for (auto& [handle, p] : processes_)
    if (p.running && !p.coordinator) alive.push_back(&p);
  if (!alive.empty()) end(*alive[random_() % alive.size()], 137);
}

void FakeWorld::kill_coordinator(Id job) {
  for (auto& [handle, p] : processes_)
    if (p.job == job && p.coordinator && p.running) end(p, 137);
}

void FakeWorld::kill_all_of(Id job) {
  for (auto& [handle, p] : processes_)
    if (p.job == job && !p.coordinator) end(p, 137);
  kill_coordinator(job);
}

std::vector<std::string> FakeWorld::running(Id job) const {
  std::vector<std::string> names;
  for (const auto& [handle, p] : processes_)
    if (p.job == job && p.running && !p.coordinator) names.push_back(p.name);
  return names;
}

std::vector<std::string> FakeWorld::devices(Id job) const {
  std::vector<std::string> devices;
  for (const auto& [handle, p] : processes_)
    if (p.job == job && p.running && !p.coordinator)
      devices.push_back(*std::next(std::find(p.words.begin(), p.words.end(), "--device")));
  std::sort(devices.begin(), devices.end());
  return devices;
}

bool FakeWorld::coordinated(Id job) const { return runs_.contains(job) && runs_.at(job).coordinator; }

int FakeWorld::starts(Id job) const { return runs_.contains(job) ? runs_.at(job).starts : 0; }

}  // namespace elinvar::pool::test
