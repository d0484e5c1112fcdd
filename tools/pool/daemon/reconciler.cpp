#include "tools/pool/daemon/reconciler.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar::pool {

namespace fs = std::filesystem;
using State = JobRecord::State;

namespace {

constexpr double kAskAgain = 3;      // seconds between repeated requests
constexpr double kMostBlocked = 10;  // seconds before a job whose new slots are all taken is stopped to go there later

constexpr double kOrphaned = 10;  // seconds; longer than a dead coordinator can look alive (run_status.cpp)

// Returns whether a request is due, and if so sets `asked`.
bool ask_now(std::optional<double>& asked, double now) {
  if (asked && now - *asked < kAskAgain) return false;
  asked = now;
  return true;
}

}  // namespace

bool Reconciler::gives_up_workers(Id job) const {
  const Decision* decision = planner_.decision(job);
  return (decision == nullptr ? 0 : places_of(*decision).size()) < processes_.workers_of(job).size();
}

void Reconciler::clock_was_set_back() { requests_.clear(); }

void Reconciler::reconcile(JobRecord& job, double now) {
  if (job.cancel && job.state == State::running) return stop(job, "it was cancelled", now);
  if (job.stopping > 0) return stop(job, "", now);
  const Decision* decided = planner_.decision(job.id);
  if (decided == nullptr) return;
  const Decision decision = *decided;  // a copy: the calls below may drop the decision
  if (job.state == State::waiting) return start_if_free(job, decision, now);
  if (places_of(decision).empty()) return stop(job, decision.reason, now);
  if (decision.shape != job.shape) {
    planner_.reshape(job.id);
    return stop(job, "it goes on in another worker shape: " + decision.reason, now);
  }
  adjust_workers(job, decision, now);
}

void Reconciler::start_if_free(JobRecord& job, const Decision& decision, double now) {
  const std::vector<std::vector<Id>> places = places_of(decision);
  const auto free = std::count_if(places.begin(), places.end(), [&](const std::vector<Id>& place) {
    return placement_.free_for(job.id, place, now);
  });
  if (now >= job.retry_at && !places.empty() && free >= std::min<int64_t>(job.min_workers, std::ssize(places)) &&
      processes_.workers_of(job.id).empty() && processes_.coordinator_of(job.id) == nullptr)
    start_coordinator(job, decision.shape, now);
  else if (now - job.since > kMostBlocked)
    planner_.keep_shape(job.id);  // its slots stay taken, so the next plan may choose others
}

Reconciler::WorkerDiff Reconciler::compare_workers(const JobRecord& job, const Decision& decision) {
  WorkerDiff diff{.missing = places_of(decision), .extra = {}};
  for (ProcessRecord* w : processes_.workers_of(job.id)) {
    const auto place = std::find(diff.missing.begin(), diff.missing.end(), w->slots);
    if (place == diff.missing.end() || !placement_.stays(*w)) {
      diff.extra.push_back(w);
      continue;
    }
    diff.missing.erase(place);
    (w->registered ? diff.has_state : diff.successors) = true;
  }
  return diff;
}

// A worker that is sent to a dead coordinator fails, and its host would be blamed. A coordinator that another process
// has started is trusted once its heartbeats have continued for kOrphaned seconds.
bool Reconciler::may_have_died(Id job, double now) {
  std::optional<double>& since = requests_[job].orphaned_since;
  const std::vector<ProcessRecord*> workers = processes_.workers_of(job);
  const bool known = processes_.coordinator_of(job) != nullptr ||
                     std::any_of(workers.begin(), workers.end(), [](const ProcessRecord* w) { return w->registered; });
  if (known) since.reset();
  else if (!since) since = now;
  return since && now - *since < kOrphaned;
}

void Reconciler::adjust_workers(JobRecord& job, const Decision& decision, double now) {
  const RunStatus& status = world_.status(job.id, now);
  WorkerDiff diff = compare_workers(job, decision);
  const bool coordinated = status.alive && !may_have_died(job.id, now);
  for (const std::vector<Id>& place : diff.missing)
    if (coordinated && placement_.free_for(job.id, place, now)) {
      start_worker(job, place, status.endpoint, now);
      diff.successors = true;
    }
  bool blocked = false;
  int kept = 0;  // at most max_workers, even if a third decision comes before the second is carried out
  for (ProcessRecord* w : diff.extra) {
    const bool goes_soon = placement_.until(*w) - now < options_.grace / 2;
    const bool needed = w->leaving == 0 && w->registered && !diff.has_state && !goes_soon;
    if (needed && diff.successors && kept++ < job.max_workers) continue;
    if (needed && !diff.successors && placement_.stays(*w)) {
      blocked = true;
      continue;
    }
    drain(*w, decision.reason, now);
  }
  std::optional<double>& since = requests_[job.id].blocked_since;
  if (!blocked) since.reset();
  else if (!since) since = now;
  else if (now - *since > kMostBlocked) stop(job, "it goes on elsewhere: " + decision.reason, now);
}

void Reconciler::start_coordinator(JobRecord& job, const WorkerShape& shape, double now) {
  try {
    world_.prepare(job);
  } catch (const std::exception& failure) {  // for example a full disk
    return lifecycle_.fail_once(job, failure.what(), now);
  }
  planner_.keep_shape(job.id);
  requests_.erase(job.id);
  job.shape = shape;
  job.state = State::running;
  job.reason.clear();
  job.digest.clear();
  job.since = now;
  if (options_.overheads) job.validations = options_.overheads(job).validations;  // used until measured
  const fs::path directory = store_.job_directory(job.id);
  std::vector<std::string> words = {options_.train,
                                    "run",
                                    directory / "config.toml",
                                    "--run-dir",
                                    directory / "run",
                                    "--resume",
                                    "--workers",
                                    "0",
                                    fmt::format("--set=run.virtual_ranks={}", job.virtual_ranks)};
  for (const std::string& setting : job.overrides) words.push_back("--set=" + setting);
  if (shape.recompute) words.push_back("--set=run.recompute=true");
  if (!options_.advertise.empty())
    words.insert(words.end(), {"--listen", "tcp://*:0", "--advertise", options_.advertise, "--key", directory / "key"});
  store_.jobs.save(job);
  store_.log.add(now, job.id, "start", job.step > 0 ? fmt::format("from step {} on", job.step) : "from the beginning");
  const ProcessRecord process{.job = job.id, .coordinator = true, .slots = {}, .handle = {}, .started = now};
  const std::string trouble = processes_.launch(
      process, [&](const ProcessRecord&) { return words; }, now);
  if (!trouble.empty()) store_.log.add(now, job.id, "trouble", trouble);
}

void Reconciler::start_worker(const JobRecord& job, const std::vector<Id>& slots, const std::string& endpoint,
                              double now) {
  const SlotRecord& first = inventory_.find(slots.front())->record;
  const fs::path directory = store_.job_directory(job.id);
  const auto command = [&](const ProcessRecord& worker) {
    const int threads = first.threads * static_cast<int>(slots.size());
    std::vector<std::string> words = {options_.train,         "join", endpoint, "--device", first.device, "--threads",
                                      std::to_string(threads)};
    if (!options_.advertise.empty()) words.insert(words.end(), {"--listen", "tcp://*:0", "--key", directory / "key"});
    words.insert(words.end(), {"--run-dir", directory / "run", "--name", worker.name()});
    return inventory_.command(first, words);
  };
  const ProcessRecord process{.job = job.id, .coordinator = false, .slots = slots, .handle = {}, .started = now};
  const std::string trouble = processes_.launch(process, command, now);
  if (trouble.empty()) return;
  store_.log.add(now, job.id, "trouble", trouble, first.host);
  backoff_.failed(first.host, job.id, now);
}

void Reconciler::drain(ProcessRecord& w, const std::string& reason, double now) {
  // A worker without the state is no member yet and has nothing to hand over: it can be killed at once.
  const bool member = world_.status(w.job, now).members.contains(w.name());
  if (w.leaving == 0) {
    const double by = std::min(now + options_.grace, placement_.until(w) - 1);
    processes_.leave(w, now, member ? std::max(now, by) : now);
    store_.log.add(now, w.job, "leave", reason, placement_.host_of(w));
  }
  if (!member) return;
  const auto [asked, first] = requests_[w.job].drain_asked.try_emplace(w.id, now);
  if (!first && now - asked->second < kAskAgain) return;
  asked->second = now;
  world_.request(w.job, {"drain", w.name()});
}

// Saves a checkpoint first if there is time.
void Reconciler::stop(JobRecord& job, const std::string& reason, double now) {
  if (job.stopping == 0) {
    job.stopping = now;
    job.reason = reason;
    store_.jobs.save(job);
    store_.log.add(now, job.id, "stop", reason);
    const bool saves = !processes_.workers_of(job.id).empty();  // workers hold the state, a coordinator does not
    processes_.stop(job.id, now, saves ? now + options_.grace : now);
  }
  if (ask_now(requests_[job.id].stop_asked, now)) world_.request(job.id, {"stop"});
}

}  // namespace elinvar::pool
