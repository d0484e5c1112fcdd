#include "tools/pool/daemon/job_lifecycle.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tools/pool/daemon/backoff.h"
#include "tools/pool/daemon/exit_report.h"

namespace elinvar::pool {

using State = JobRecord::State;

namespace {

constexpr double kNoteEvery = 5;       // seconds
constexpr double kLeastFinish = 1e-3;  // seconds: 0 would mean "not measured"

}  // namespace

JobLifecycle::JobLifecycle(Store& store, World& world, const SchedulerOptions& options, const Placement& placement,
                           HostBackoff& backoff, ProcessTable& processes, Profiler& profiler, Planner& planner)
    : store_(store),
      world_(world),
      options_(options),
      placement_(placement),
      backoff_(backoff),
      processes_(processes),
      profiler_(profiler),
      planner_(planner),
      kernel_kills_(world.kernel_kills()),
      kernel_kills_before_(kernel_kills_) {}

void JobLifecycle::load(double now) {
  if (!began_) began_ = now;
  kernel_kills_before_ = kernel_kills_;
  kernel_kills_ = world_.kernel_kills();
  jobs_ = store_.jobs.open();
  std::erase_if(watches_, [&](const auto& watch) { return find(watch.first) == nullptr; });
  for (JobRecord& job : jobs_) {
    set_right(job, now);
    if (watches_.try_emplace(job.id).second) planner_.request();
    if (job.state != State::waiting || job.retry_at == 0 || now < job.retry_at) continue;
    job.retry_at = 0;
    store_.jobs.save(job);
    planner_.request();
  }
}

// Corrects times that lie in the future because the clock was set back, so that no wait grows by it.
void JobLifecycle::set_right(JobRecord& job, double now) {
  const JobRecord before = job;
  job.since = std::min(job.since, now);
  job.stopping = std::min(job.stopping, now);
  if (job.retry_at > now + kLongestBackoff) job.retry_at = now;
  if (job.since != before.since || job.stopping != before.stopping || job.retry_at != before.retry_at)
    store_.jobs.save(job);
}

void JobLifecycle::clock_was_set_back() {
  began_.reset();
  for (auto& [job, watch] : watches_) {
    watch.silent_since.reset();
    watch.progress_noted.reset();
  }
}

JobRecord* JobLifecycle::find(Id id) {
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const JobRecord& j) { return j.id == id; });
  return job == jobs_.end() ? nullptr : &*job;
}

void JobLifecycle::drop_ended_jobs() {
  std::erase_if(jobs_, [](const JobRecord& job) { return job.over(); });
}

void JobLifecycle::process_ended(const ProcessRecord& p, double now) {
  if (!p.coordinator) return worker_ended(p, now);
  if (find(p.job) == nullptr) return;
  Watch& watch = watches_[p.job];
  watch.coordinator_exit = p.code;
  if (const auto lost = lost_ledger(p.code, world_.end_of_log(processes_.log_of(p)))) watch.unrunnable = *lost;
}

void JobLifecycle::worker_ended(const ProcessRecord& w, double now) {
  const std::string host = placement_.host_of(w);  // "": the machine is gone
  const std::string result = world_.status(w.job, now).result;
  const bool too_late = (!w.registered || w.code == kUnknownExit) && (result == "finished" || result == "interrupted");
  if (w.leaving > 0 || w.code == 0 || too_late) {
    if (!host.empty())
      store_.log.add(now, w.job, "left", fmt::format("worker {} {}", w.name(), exit_text(w.code)), host);
    return;
  }
  planner_.request();
  const std::string log = world_.end_of_log(processes_.log_of(w));
  const bool memory = out_of_memory(log) || (w.code == kKilled && kernel_kills_ > kernel_kills_before_);
  const std::string message = last_message(log);
  store_.log.add(now, w.job, memory ? "memory" : "lost",
                 fmt::format("worker {} {}: {}", w.name(), exit_text(w.code), message), host);
  JobRecord* job = find(w.job);
  if (host.empty() || job == nullptr) return;
  if (const auto lost = lost_ledger(w.code, log)) watches_[w.job].unrunnable = *lost;
  if (memory) {  // the device kind is at fault; hosts of other kinds are not
    const std::string kind = placement_.kind_of(w);
    profiler_.ran_out_of_memory(*job, w, kind, 1 + placement_.workers_of_kind(w.job, kind));
  } else if (!w.registered && w.code != kUnknownExit) {  // unknown exit: it may never have been started
    worker_failed_to_start(w, host, message, now);
  }
}

void JobLifecycle::worker_failed_to_start(const ProcessRecord& w, const std::string& host, const std::string& message,
                                          double now) {
  Watch& watch = watches_[w.job];
  if (!watch.unrunnable.empty()) return;  // the job is at fault, not the host
  // Exit code 2 means that the configuration is wrong, which holds for all workers if none ever started.
  const bool nobody = nobody_ever_started(w.job);
  const int most = nobody ? options_.failures : 3 * options_.failures;
  if ((w.code == kConfigurationError && nobody) || ++watch.failed_starts >= most)
    watch.unrunnable = fmt::format("no worker can start: {}", message);
  const double wait = backoff_.failed(host, w.job, now);
  store_.log.add(now, 0, "rest", fmt::format("workers fail to start there; the next one after {:.0f} s", wait), host);
}

bool JobLifecycle::nobody_ever_started(Id id) {
  const std::vector<ProcessRecord*> workers = processes_.workers_of(id);
  const JobRecord* job = find(id);
  return job != nullptr && job->step == 0 && !watches_[id].had_worker &&
         std::none_of(workers.begin(), workers.end(), [](const ProcessRecord* w) { return w->registered; });
}

void JobLifecycle::observe(JobRecord& job, double now) {
  if (job.state == State::waiting) {
    if (job.cancel) enter(job, State::cancelled, "it was cancelled while it waited", now);
    return;
  }
  const RunStatus& status = world_.status(job.id, now);
  note_progress(job, status, now);
  note_registered(job, status);
  if (profiler_.observe(job, status, placement_.settled_allocation(job.id), now)) planner_.request();
  if (const std::string& reason = watches_[job.id].unrunnable; !reason.empty())
    enter(job, State::failed, std::string(reason), now);
  else conclude(job, status, now);
}

void JobLifecycle::note_progress(JobRecord& job, const RunStatus& status, double now) {
  if (status.step == job.step && (status.steps == 0 || status.steps == job.steps)) return;
  job.step = status.step;
  if (status.steps > 0) job.steps = status.steps;
  store_.jobs.save(job);
  std::optional<double>& noted = watches_[job.id].progress_noted;
  if (noted && now - *noted < kNoteEvery) return;
  noted = now;
  store_.transaction([&] { store_.progress.add({.time = now, .job = job.id, .step = job.step}); });
}

void JobLifecycle::note_registered(JobRecord& job, const RunStatus& status) {
  Watch& watch = watches_[job.id];
  for (ProcessRecord* w : processes_.workers_of(job.id)) {
    if (w->registered || !status.registered.contains(w->name())) continue;
    processes_.registered(*w);
    watch.had_worker = true;
    watch.failed_starts = 0;
    if (const std::string host = placement_.host_of(*w); !host.empty()) backoff_.recovered(host);
  }
}

// Ends the job, or schedules another attempt, if it has no coordinator left.
void JobLifecycle::conclude(JobRecord& job, const RunStatus& status, double now) {
  if (status.result == "finished") {
    job.digest = status.digest;
    if (status.computed_at > *began_) job.costs.finish = std::max(kLeastFinish, now - status.computed_at);
    return enter(job, State::finished, "", now);
  }
  if (status.result == "interrupted") {
    job.digest = status.digest;
    if (job.cancel)
      return enter(job, State::cancelled, fmt::format("it was cancelled after step {}", status.step), now);
    return enter(job, State::waiting, "it was stopped with a checkpoint", now);
  }
  Watch& watch = watches_[job.id];
  if (status.alive || processes_.coordinator_of(job.id) != nullptr) {
    watch.silent_since.reset();
    return;
  }
  // A worker may be about to start another coordinator.
  if (!watch.silent_since) watch.silent_since = now;
  const std::vector<ProcessRecord*> workers = processes_.workers_of(job.id);
  const bool hope = std::any_of(workers.begin(), workers.end(), [](const ProcessRecord* w) { return w->registered; });
  if (hope && now - *watch.silent_since < options_.takeover) return;
  watch.silent_since.reset();
  if (job.cancel) return enter(job, State::cancelled, "it was cancelled; its coordinator was gone", now);
  if (job.stopping > 0)
    return enter(job, State::waiting, "it was stopped, without a checkpoint of its last steps", now);
  const std::string message = last_message(world_.end_of_log(store_.job_directory(job.id) / "coordinator.log"));
  const int code = watch.coordinator_exit.value_or(kUnknownExit);
  // Another attempt would end in the same way.
  if (code == kConfigurationError && job.step == 0) return enter(job, State::failed, message, now);
  fail_once(job,
            !status.reason.empty() ? status.reason : fmt::format("its coordinator {}: {}", exit_text(code), message),
            now);
}

void JobLifecycle::fail_once(JobRecord& job, const std::string& reason, double now) {
  if (job.step > job.failed_at) job.failures = 0;
  job.failed_at = job.step;
  if (++job.failures >= options_.failures)
    return enter(job, State::failed,
                 fmt::format("{} failures without a step in between; the last: {}", job.failures, reason), now);
  job.retry_at = now + backoff_seconds(job.failures);
  enter(job, State::waiting, fmt::format("{}; again in {:.0f} s", reason, job.retry_at - now), now);
}

void JobLifecycle::enter(JobRecord& job, State state, const std::string& reason, double now) {
  job.state = state;
  job.reason = reason;
  job.since = now;
  job.stopping = 0;
  if (job.over()) job.ended = now;
  // Processes that are left exit by themselves or are killed.
  for (ProcessRecord* p : processes_.all_of(job.id))
    processes_.leave(*p, now, now + (state == State::failed ? 1 : options_.grace));
  store_.jobs.save(job);
  store_.log.add(now, job.id, name_of(state), reason.empty() ? fmt::format("{} steps", job.step) : reason);
  const bool reshapes = planner_.reshaping(job.id) && state == State::waiting && job.retry_at <= now;
  if (!reshapes) planner_.forget(job.id);  // otherwise it keeps its decision
  profiler_.stopped(job.id, /*keeps_prediction=*/reshapes);
  watches_[job.id].coordinator_exit.reset();
  watches_[job.id].unrunnable.clear();
  planner_.request();
}

}  // namespace elinvar::pool
