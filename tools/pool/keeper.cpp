#include "tools/pool/keeper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar::pool {

namespace fs = std::filesystem;
using State = JobRecord::State;

namespace {

constexpr double kNoteEvery = 5;       // seconds
constexpr int kBadHost = 3;            // workers in a row that did not live there: it is given to nobody for a while
constexpr double kLongestPause = 300;  // seconds, before a job or a host is tried again

double pause_after(int failures) { return std::min(kLongestPause, std::exp2(std::min(failures, 20))); }

bool out_of_memory(const std::string& words) {
  for (const char* sign : {"out of memory", "Out Of Memory", "oom-kill", "bad_alloc", "oom_kill"})
    if (words.find(sign) != std::string::npos) return true;
  return false;
}

std::string text_of(int code) {
  if (code == -1) return "is gone";
  return code > 128 ? fmt::format("was killed by signal {}", code - 128) : fmt::format("ended with exit code {}", code);
}

// What a program said last, or rather what `train` did, if it has: srun and ssh say that it ended, and not why.
std::string last_line(const std::string& said) {
  const size_t own = said.rfind("\ntrain: ");
  const std::string text = own != std::string::npos      ? said.substr(own, said.find('\n', own + 1) - own)
                           : said.starts_with("train: ") ? said.substr(0, said.find('\n'))
                                                         : said;
  const size_t end = text.find_last_not_of(" \r\n") + 1;
  const size_t begin = text.rfind('\n', end == 0 ? 0 : end - 1);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1));
}

}  // namespace

Keeper::Keeper(Store& store, World& world, std::vector<NamedSource> sources, KeeperOptions options)
    : store_(store), world_(world), sources_(std::move(sources)), options_(std::move(options)) {
  kernel_kills_ = kills_before_ = world_.kernel_kills();
}

void Keeper::tick(double now) {
  if (now < now_) forget_times();
  now_ = now;
  if (began_ == 0) began_ = now;
  load();
  look_at_machines();
  look_at_processes();
  look_at_jobs();
  if (changed_ || now_ - planned_ >= options_.replan) plan();
  carry_out();
  give_back();
}

// The clock was set back: what was noted by it lies ahead for as long as that.
void Keeper::forget_times() {
  began_ = planned_ = 0;
  changed_ = true;
  for (std::map<Id, double>* times : {&asked_, &silent_since_, &measured_at_, &noted_at_}) times->clear();
  rests_.clear();
  for (auto& [id, live] : live_) live.idle_since = 0;
}

// The same of what is on file, whoever has noted it: nobody waits or stays for longer than he may.
void Keeper::set_right(JobRecord& job) {
  const JobRecord before = job;
  job.since = std::min(job.since, now_);
  job.stopping = std::min(job.stopping, now_);
  if (job.retry_at > now_ + kLongestPause) job.retry_at = now_;
  if (job.since != before.since || job.stopping != before.stopping || job.retry_at != before.retry_at) store_.save(job);
}

void Keeper::set_right(ProcessRecord& process) {
  if (process.leaving <= now_ && (process.leaving == 0 || process.leave_by <= now_ + options_.grace)) return;
  process.leaving = std::min(process.leaving, now_);
  process.leave_by = std::min(process.leave_by, now_ + options_.grace);
  store_.save(process);
}

void Keeper::end() {
  options_.idle = -1;
  load();
  give_back();
  for (const NamedSource& source : sources_) source.source->want_nothing();
}

void Keeper::load() {
  jobs_ = store_.jobs(/*over_too=*/false);
  slots_ = store_.slots();
  const std::vector<ProcessRecord> processes = store_.processes();
  processes_.assign(processes.begin(), processes.end());
  for (JobRecord& job : jobs_) set_right(job);
  for (ProcessRecord& process : processes_) set_right(process);
  kills_before_ = kernel_kills_;
  kernel_kills_ = world_.kernel_kills();
  for (const JobRecord& job : jobs_)
    if (known_.insert(job.id).second) changed_ = true;
  for (JobRecord& job : jobs_)
    if (job.state == State::waiting && job.retry_at > 0 && now_ >= job.retry_at) {
      job.retry_at = 0;
      store_.save(job);
      changed_ = true;
    }
}

void Keeper::look_at_processes() {
  for (ProcessRecord& p : processes_) {
    if (p.handle.empty()) {  // whoever was starting it was killed
      const fs::path directory = store_.job_directory(p.job);
      p.handle =
          world_.find(p.coordinator ? std::vector<std::string>{"run", directory / "config.toml"}
                                    : std::vector<std::string>{"--run-dir", directory / "run", "--name", p.name()});
      if (p.handle.empty()) {
        ended(p, -1);
        continue;
      }
      store_.save(p);
    }
    const Fate fate = world_.fate(p.handle);
    const bool homeless = std::any_of(p.slots.begin(), p.slots.end(), [&](Id id) { return slot(id) == nullptr; });
    if (!fate.running) ended(p, fate.code);
    else if (now_ >= p.leave_by || homeless) world_.kill(p.handle);
  }
  std::erase_if(processes_, [](const ProcessRecord& p) { return p.ended > 0; });
}

void Keeper::ended(ProcessRecord& p, int code) {
  p.ended = now_;
  p.code = code;
  store_.save(p);
  if (p.coordinator) {
    codes_[p.job] = code;
    return;
  }
  const SlotRecord* place = p.slots.empty() ? nullptr : slot(p.slots.front());
  const std::string host = place == nullptr ? "" : place->host;
  const std::string result = world_.sight(p.job, now_).result;
  const bool too_late = (!p.met || code == -1) && (result == "finished" || result == "interrupted");
  if (p.leaving > 0 || code == 0 || too_late) {
    if (place != nullptr) log(p.job, "left", fmt::format("worker {} {}", p.name(), text_of(code)), host);
    return;
  }
  changed_ = true;
  const std::string words = world_.last_words(log_of(p));
  const bool memory = out_of_memory(words) || (code == 137 && kernel_kills_ > kills_before_);
  log(p.job, memory ? "memory" : "lost", fmt::format("worker {} {}: {}", p.name(), text_of(code), last_line(words)),
      host);
  if (place == nullptr) return;
  if (memory) {  // a plan with this form here is none
    const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const JobRecord& j) { return j.id == p.job; });
    if (job == jobs_.end()) return;
    int alike = 1;  // its kind is at fault, not those of others
    for (const ProcessRecord* w : workers_of(p.job))
      if (const SlotRecord* s = slot(w->slots.front()); s != nullptr && s->kind == place->kind) ++alike;
    store_.measure(p.job, -p.id, {.workers = {{place->kind, alike}}, .form = job->form});
  } else if (!p.met && code != -1) {  // else it may never have been started
    // Who ends with code 2 says that the configuration is at fault, for all if nobody has got further.
    const bool alone = job_is_new(p.job);
    const int most = alone ? options_.failures : 3 * options_.failures;
    if ((code == 2 && alone) || ++stillborn_[p.job] >= most)
      doomed_[p.job] = fmt::format("no worker can start: {}", last_line(words));
    Rest& rest = rests_[host];
    rest.until = now_ + pause_after(++rest.failures);
    rest.jobs.insert(p.job);
    log(0, "rest", fmt::format("workers do not live there; the next one after {:.0f} s", rest.until - now_), host);
  }
}

bool Keeper::job_is_new(Id job) {
  const std::vector<ProcessRecord*> workers = workers_of(job);
  return !lived_.contains(job) &&
         std::none_of(workers.begin(), workers.end(), [](const ProcessRecord* w) { return w->met; }) &&
         std::any_of(jobs_.begin(), jobs_.end(), [&](const JobRecord& j) { return j.id == job && j.step == 0; });
}

void Keeper::look_at_jobs() {
  for (JobRecord& job : jobs_) apart(job.id, [&] { look_at_job(job); });
  std::erase_if(jobs_, [](const JobRecord& job) { return job.over(); });
}

void Keeper::look_at_job(JobRecord& job) {
  if (job.state == State::waiting) {
    if (job.cancel) enter(job, State::cancelled, "it was cancelled while it waited");
    return;
  }
  const Sight& sight = world_.sight(job.id, now_);
  if (sight.step != job.step || (sight.steps > 0 && sight.steps != job.steps)) {
    job.step = sight.step;
    if (sight.steps > 0) job.steps = sight.steps;
    store_.save(job);
    if (now_ - noted_at_[job.id] >= kNoteEvery) {
      noted_at_[job.id] = now_;
      store_.note_progress(now_, job.id, job.step);
    }
  }
  for (ProcessRecord* w : workers_of(job.id)) {
    if (w->met || !sight.met.contains(w->name())) continue;
    w->met = true;
    lived_.insert(job.id);
    stillborn_.erase(job.id);
    store_.save(*w);
    if (const SlotRecord* s = slot(w->slots.front()); s != nullptr) rests_.erase(s->host);
  }
  look_at_readers(job, sight);
  look_besides(job, sight);
  measure(job, sight);
  if (const auto doomed = doomed_.find(job.id); doomed != doomed_.end()) enter(job, State::failed, doomed->second);
  else conclude(job, sight);
}

// Whether nobody coordinates it any more, and what it is then.
void Keeper::conclude(JobRecord& job, const Sight& sight) {
  if (sight.result == "finished") {
    job.digest = sight.digest;
    if (sight.computed_at > began_) job.took.finish = std::max(1e-3, now_ - sight.computed_at);
    return enter(job, State::finished, "");
  }
  if (sight.result == "interrupted") {
    job.digest = sight.digest;
    if (job.cancel) return enter(job, State::cancelled, fmt::format("it was cancelled after step {}", sight.step));
    return enter(job, State::waiting, "it was stopped with a checkpoint");
  }
  if (sight.alive || coordinator_of(job.id) != nullptr) {
    silent_since_.erase(job.id);
    return;
  }
  // One of its workers may be about to start another coordinator.
  const double since = silent_since_.emplace(job.id, now_).first->second;
  const std::vector<ProcessRecord*> workers = workers_of(job.id);
  const bool hope = std::any_of(workers.begin(), workers.end(), [](const ProcessRecord* w) { return w->met; });
  if (hope && now_ - since < options_.takeover) return;
  silent_since_.erase(job.id);
  if (job.cancel) return enter(job, State::cancelled, "it was cancelled; its coordinator was gone");
  if (job.stopping > 0) return enter(job, State::waiting, "it was stopped, without a checkpoint of its last steps");
  const std::string said = last_line(world_.last_words(store_.job_directory(job.id) / "coordinator.log"));
  const int code = codes_.contains(job.id) ? codes_[job.id] : -1;
  const std::string reason =
      !sight.reason.empty() ? sight.reason : fmt::format("its coordinator {}: {}", text_of(code), said);
  if (code == 2 && job.step == 0) return enter(job, State::failed, said);  // it would be no better the next time
  failed(job, reason);
}

void Keeper::failed(JobRecord& job, const std::string& reason) {
  if (job.step > job.failed_at) job.failures = 0;
  job.failed_at = job.step;
  if (++job.failures >= options_.failures)
    return enter(job, State::failed,
                 fmt::format("{} failures without a step in between; the last: {}", job.failures, reason));
  job.retry_at = now_ + pause_after(job.failures);
  enter(job, State::waiting, fmt::format("{}; again in {:.0f} s", reason, job.retry_at - now_));
}

void Keeper::enter(JobRecord& job, State state, const std::string& reason) {
  job.state = state;
  job.reason = reason;
  job.since = now_;
  job.stopping = 0;
  if (job.over()) job.ended = now_;
  // Whoever is left over ends by itself, or is killed.
  for (ProcessRecord& p : processes_)
    if (p.job == job.id && p.ended == 0) {
      p.leaving = p.leaving > 0 ? p.leaving : now_;
      p.leave_by = std::min(p.leave_by, now_ + (state == State::failed ? 1 : options_.grace));
      store_.save(p);
    }
  store_.save(job);
  log(job.id, name_of(state), reason.empty() ? fmt::format("{} steps", job.step) : reason);
  if (state != State::waiting || job.retry_at > now_) reforming_.erase(job.id);
  if (!reforming_.contains(job.id)) {  // else it keeps what it was given
    decisions_.erase(job.id);
    promised_.erase(job.id);
  }
  codes_.erase(job.id);
  doomed_.erase(job.id);
  if (job.over()) {
    lived_.erase(job.id);
    stillborn_.erase(job.id);
  }
  measured_at_.erase(job.id);
  changed_ = true;
}

bool Keeper::usable(Id id) const {
  const SlotRecord* s = slot(id);
  if (s == nullptr) return false;
  const auto live = live_.find(id);
  const auto rest = rests_.find(s->host);
  // Where workers of another job live it is not the host's fault.
  const bool bad =
      rest != rests_.end() && rest->second.failures >= kBadHost && now_ < rest->second.until && !lives(s->host);
  return live != live_.end() && !live->second.leaving && !bad;
}

bool Keeper::rests(Id id, Id job) const {
  const SlotRecord* s = slot(id);
  const auto rest = s == nullptr ? rests_.end() : rests_.find(s->host);
  return rest != rests_.end() && now_ < rest->second.until && (rest->second.jobs.contains(job) || !lives(s->host));
}

bool Keeper::lives(const std::string& host) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const ProcessRecord& p) {
    const SlotRecord* s = p.ended > 0 || !p.met || p.slots.empty() ? nullptr : slot(p.slots.front());
    return s != nullptr && s->host == host;
  });
}

bool Keeper::stays(const ProcessRecord& p) const {
  return p.leaving == 0 && std::none_of(p.slots.begin(), p.slots.end(), [&](Id id) {
           const auto live = live_.find(id);  // none: its source has not been heard of yet
           return slot(id) == nullptr || (live != live_.end() && live->second.leaving);
         });
}

std::vector<ProcessRecord*> Keeper::workers_of(Id job) {
  std::vector<ProcessRecord*> workers;
  for (ProcessRecord& p : processes_)
    if (p.job == job && !p.coordinator && p.ended == 0) workers.push_back(&p);
  return workers;
}

ProcessRecord* Keeper::coordinator_of(Id job) {
  for (ProcessRecord& p : processes_)
    if (p.job == job && p.coordinator && p.ended == 0) return &p;
  return nullptr;
}

void Keeper::apart(Id job, const std::function<void()>& work) {
  try {
    work();
  } catch (const StoreDamage&) {
    throw;
  } catch (const Failure& failure) {
    if (std::exchange(trouble_of_[job], failure.what()) != failure.what()) log(job, "trouble", failure.what());
  }
}

fs::path Keeper::log_of(const ProcessRecord& p) const {
  return store_.job_directory(p.job) / (p.coordinator ? "coordinator.log" : p.name() + ".log");
}

void Keeper::log(Id job, const std::string& what, const std::string& reason, const std::string& where) {
  store_.log(now_, job, what, reason, where);
}

}  // namespace elinvar::pool
