// The keeper: from what is there to a plan, and from the plan to what is done.
#include <algorithm>

#include "tensor/base/check.h"
#include "tools/pool/keeper.h"
#include "tools/pool/speed.h"

namespace elinvar::pool {

namespace fs = std::filesystem;
using State = JobRecord::State;

namespace {

constexpr double kAskAgain = 3;       // seconds
constexpr double kStanding = 10;      // before a job whose slots are all taken by others is stopped to go elsewhere
constexpr double kFirstAnswers = 60;  // seconds, from sources
constexpr double kUnused = 10;        // seconds that a slot is idle before no more machines are wanted

// Worker after worker, `width` slots each.
std::vector<std::vector<Id>> places_of(const Decision& decision) {
  std::vector<std::vector<Id>> places;
  const auto width = static_cast<size_t>(std::max(1, decision.form.width));
  for (size_t i = 0; i + width <= decision.slots.size(); i += width) {
    places.emplace_back(decision.slots.begin() + static_cast<int64_t>(i),
                        decision.slots.begin() + static_cast<int64_t>(i + width));
    std::sort(places.back().begin(), places.back().end());
  }
  return places;
}

}  // namespace

// Without recomputation and with it, and of several CPU slots a worker where a host has them (a worker has one GPU).
std::vector<Form> Keeper::forms_of(const JobRecord& job) const {
  std::map<std::pair<std::string, std::string>, int> of_host;
  int widest = 1;
  for (const SlotRecord& s : slots_) {
    if (!usable(s.id) ||
        (!job.kinds.empty() && std::find(job.kinds.begin(), job.kinds.end(), s.kind) == job.kinds.end()))
      continue;
    if (s.device != "cpu") return {{.width = 1, .recompute = false}, {.width = 1, .recompute = true}};
    widest = std::max(widest, ++of_host[{s.source + " " + s.host, s.kind}]);
  }
  std::vector<Form> forms;
  for (int width = 1; width <= std::max(widest, job.form.width); width *= 2)
    for (const bool recompute : {false, true}) forms.push_back({width, recompute});
  return forms;
}

Pool Keeper::pool() const {
  Pool pool{.now = now_,
            .slots = {},
            .jobs = {},
            .horizon = options_.horizon,
            .patience = options_.patience,
            .turn = options_.turn};
  for (const SlotRecord& s : slots_)
    if (usable(s.id))
      pool.slots.push_back(
          {.id = s.id, .kind = s.kind, .host = s.host, .since = s.since, .until = live_.at(s.id).until});
  for (const JobRecord& j : jobs_) {
    const auto decided = decisions_.find(j.id);
    const bool reforms = reforming_.contains(j.id) && decided != decisions_.end() && !decided->second.slots.empty();
    if (j.cancel || (j.stopping > 0 && !reforms) || now_ < j.retry_at) continue;
    Job job;
    job.id = j.id;
    job.name = j.name;
    job.min_workers = j.min_workers;
    job.max_workers = j.max_workers;
    job.fixed_workers = j.fixed_workers;
    job.kinds = j.kinds;
    job.forms = forms_of(j);
    job.priority = j.priority;
    job.submitted = j.submitted;
    job.deadline = j.deadline;
    job.virtual_ranks = j.virtual_ranks;
    const Besides besides = options_.besides ? options_.besides(j) : Besides{.costs = {}, .validations = j.validations};
    job.costs = besides.costs;
    const int64_t all = std::max({j.steps, j.step, int64_t{1}});
    job.done = work_for(j.step, static_cast<double>(j.batch), besides.validations);
    job.total = std::max(work_of_all(all, static_cast<double>(j.batch), besides.validations),
                         job.done + static_cast<double>(j.batch));  // as long as it runs something is left
    job.since = j.since;
    job.measured = store_.measurements(j.id);
    job.speed = options_.speed(j, job.measured);
    job.form = reforms ? decided->second.form : j.form;
    if (j.state == State::running || reforms) {
      // What it was given counts from then on, although its workers may still be on their way.
      if (decided != decisions_.end()) {
        for (const std::vector<Id>& place : places_of(decided->second))
          if (std::all_of(place.begin(), place.end(), [&](Id id) { return usable(id); }))
            job.slots.insert(job.slots.end(), place.begin(), place.end());
      } else {
        for (const ProcessRecord& p : processes_)
          if (p.job == j.id && !p.coordinator && p.ended == 0 && stays(p) &&
              std::all_of(p.slots.begin(), p.slots.end(), [&](Id id) { return usable(id); }))
            job.slots.insert(job.slots.end(), p.slots.begin(), p.slots.end());
      }
    }
    pool.jobs.push_back(std::move(job));
  }
  return pool;
}

void Keeper::plan() {
  // Before every source has said what there is, a plan would take slots for gone that only were not heard of yet.
  if (answered_.size() < sources_.size() && now_ - began_ < kFirstAnswers) return;
  planned_ = now_;
  changed_ = false;
  const Pool pool = this->pool();
  Plan plan;
  try {
    plan = options_.policy(pool);
  } catch (const std::exception& error) {
    return log(0, "plan", fmt::format("the policy fails, and nothing changes: {}", error.what()));
  }
  if (const std::vector<std::string> wrong = violations(pool, plan); !wrong.empty())
    return log(0, "plan", "a plan that breaks the rules is not carried out: " + wrong.front());
  const std::map<Id, Decision> last = std::exchange(decisions_, {});
  for (size_t i = 0; i < plan.decisions.size(); ++i) {
    const Decision& decision = plan.decisions[i];
    const Mix mix = mix_of(pool, decision.slots, decision.form);
    if (Promise& promise = promised_[decision.job]; promise.mix != mix || promise.form != decision.form) {
      const Job& job = pool.jobs[i];
      const Rate rate = job.speed->rate(mix, decision.form);
      // What it has already, as after a restart of this process, is measured and not foretold.
      const bool has = job.form == decision.form && mix_of(pool, job.slots, job.form) == mix;
      promise = {mix, decision.form, has || rate.error >= kUnknown ? 0 : rate.samples, rate.error, decision.trial};
    }
    const auto before = last.find(decision.job);
    const bool same =
        before != last.end() && before->second.slots == decision.slots && before->second.form == decision.form;
    if (!same || (decision.slots.empty() && before->second.reason != decision.reason)) {
      std::set<std::string> hosts;
      for (const Id id : decision.slots) hosts.insert(slot(id)->host);
      log(decision.job, decision.slots.empty() ? "waits" : "plan",
          decision.slots.empty() ? decision.reason
                                 : fmt::format("{} slot{}: {}", decision.slots.size(),
                                               decision.slots.size() == 1 ? "" : "s", decision.reason),
          fmt::format("{}", fmt::join(hosts, " ")));
    }
    for (JobRecord& job : jobs_)
      if (job.id == decision.job && job.state == State::waiting && decision.slots.empty() &&
          job.reason != decision.reason) {
        job.reason = decision.reason;
        store_.save(job);
      }
    if (decision.slots.empty()) reforming_.erase(decision.job);
    decisions_[decision.job] = decision;
  }
  // So many more slots would be used.
  int room = 0;
  for (const Job& job : pool.jobs) room += job.max_workers;
  wanted_ = std::max(0, room - static_cast<int>(pool.slots.size()));
}

// First the jobs that give slots up, then those that get some.
void Keeper::carry_out() {
  for (const bool giving : {true, false})
    for (JobRecord& job : jobs_) {
      const auto decision = decisions_.find(job.id);
      const size_t now_has = workers_of(job.id).size();
      const size_t will_have = decision == decisions_.end() ? 0 : places_of(decision->second).size();
      if ((will_have < now_has) != giving) continue;
      apart(job.id, [&] {
        if (job.cancel && job.state == State::running) stop(job, "it was cancelled");
        else if (job.stopping > 0) stop(job, "");
        else if (decision != decisions_.end()) carry_out(job, decision->second);
      });
    }
}

void Keeper::carry_out(JobRecord& job, const Decision& decision) {
  const std::vector<std::vector<Id>> places = places_of(decision);
  const auto is_free = [&](const std::vector<Id>& place) {
    return std::all_of(place.begin(), place.end(), [&](Id id) {
      return usable(id) && !rests(id, job.id) &&
             std::none_of(processes_.begin(), processes_.end(), [&](const ProcessRecord& p) {
               return p.ended == 0 && std::find(p.slots.begin(), p.slots.end(), id) != p.slots.end();
             });
    });
  };
  if (job.state == State::waiting) {
    const auto free = std::count_if(places.begin(), places.end(), is_free);
    if (now_ >= job.retry_at && !places.empty() && free >= std::min<int64_t>(job.min_workers, std::ssize(places)) &&
        workers_of(job.id).empty() && coordinator_of(job.id) == nullptr)
      start_coordinator(job, decision.form);
    else if (now_ - job.since > kStanding)
      reforming_.erase(job.id);  // where it was it does not come up: it may go elsewhere
    return;
  }
  if (places.empty()) return stop(job, decision.reason);
  if (decision.form.recompute != job.form.recompute || decision.form.width != job.form.width)
    return reforming_.insert(job.id), stop(job, "it goes on in another form: " + decision.reason);

  const Sight& sight = world_.sight(job.id, now_);
  std::vector<std::vector<Id>> missing = places;
  std::vector<ProcessRecord*> extra;
  bool others = false, on_its_way = false;  // who could go on without the extra ones, now or soon
  for (ProcessRecord* w : workers_of(job.id)) {
    const auto place = std::find(missing.begin(), missing.end(), w->slots);
    if (place != missing.end() && stays(*w)) {
      missing.erase(place);
      (w->met ? others : on_its_way) = true;
    } else {
      extra.push_back(w);
    }
  }
  for (const std::vector<Id>& place : missing)
    if (sight.alive && is_free(place)) {
      start_worker(job, place, sight.endpoint);
      on_its_way = true;
    }
  bool waits = false;
  int kept = 0;  // as many as it may have, also where it goes on to a third place before it has reached the second
  for (ProcessRecord* w : extra) {
    double until = kNever;
    for (const Id id : w->slots)
      if (const auto live = live_.find(id); live != live_.end()) until = std::min(until, live->second.until);
    const bool pressing = until - now_ < options_.grace / 2;
    // The job keeps its state in its workers: it would have to stop if all of them left before the next ones came.
    if (w->leaving == 0 && w->met && !others && on_its_way && !pressing && kept++ < job.max_workers) continue;
    if (w->leaving == 0 && w->met && !others && !on_its_way && !pressing && stays(*w)) {
      waits = true;
      continue;
    }
    leave(*w, decision.reason);
  }
  double& standing = silent_since_[-job.id];
  if (!waits) standing = 0;
  else if (standing == 0) standing = now_;
  else if (now_ - standing > kStanding) stop(job, "it goes on elsewhere: " + decision.reason);
}

void Keeper::start_coordinator(JobRecord& job, const Form& form) {
  try {
    world_.prepare(job);
  } catch (const std::exception& failure) {  // a full disk, say
    return failed(job, failure.what());
  }
  reforming_.erase(job.id);
  job.form = form;
  job.state = State::running;
  job.reason.clear();
  job.digest.clear();
  job.since = now_;
  if (options_.besides) job.validations = options_.besides(job).validations;  // until it is seen what they take
  const ProcessRecord process{.job = job.id, .coordinator = true, .slots = {}, .handle = {}, .started = now_};
  const fs::path directory = store_.job_directory(job.id);
  std::vector<std::string> words = {
      options_.train, "run", directory / "config.toml", "--run-dir", directory / "run", "--resume", "--workers", "0"};
  for (const std::string& setting : job.overrides) words.push_back("--set=" + setting);
  if (form.recompute) words.push_back("--set=run.recompute=true");
  if (!options_.advertise.empty())
    words.insert(words.end(), {"--listen", "tcp://*:0", "--advertise", options_.advertise, "--key", directory / "key"});
  store_.save(job);
  log(job.id, "start", job.step > 0 ? fmt::format("from step {} on", job.step) : "from the beginning");
  launch(process, words, nullptr);
}

void Keeper::start_worker(const JobRecord& job, const std::vector<Id>& slots, const std::string& endpoint) {
  const SlotRecord& place = *slot(slots.front());
  ProcessRecord process{.job = job.id, .coordinator = false, .slots = slots, .handle = {}, .started = now_};
  const fs::path directory = store_.job_directory(job.id);
  std::vector<std::string> words = {options_.train,
                                    "join",
                                    endpoint,
                                    "--device",
                                    place.device,
                                    "--threads",
                                    std::to_string(place.threads * static_cast<int>(slots.size()))};
  if (!options_.advertise.empty()) words.insert(words.end(), {"--listen", "tcp://*:0", "--key", directory / "key"});
  words.insert(words.end(), {"--run-dir", directory / "run", "--name"});
  launch(process, words, &place);
}

// On file first, then started, then its handle on file: whoever is killed in between finds it by its words.
void Keeper::launch(ProcessRecord process, std::vector<std::string> words, const SlotRecord* place) {
  store_.transaction([&] { process.id = store_.add(process); });
  if (!process.coordinator) words.push_back(process.name());
  try {
    if (place != nullptr) {
      const Machine* machine = machine_of(*place);
      if (machine == nullptr) fail("{} is gone", place->host);
      words = source_of(*place)->command(*machine, words);
    }
    process.handle = world_.start(words, log_of(process));
  } catch (const std::exception& error) {
    log(process.job, "trouble", error.what(), place == nullptr ? "" : place->host);
    process.ended = now_;
    process.code = -1;
    if (place != nullptr) {
      Rest& rest = rests_[place->host];
      rest.until = now_ + std::min(300.0, std::exp2(std::min(++rest.failures, 20)));
      rest.jobs.insert(process.job);
    }
  }
  store_.save(process);
  if (process.ended == 0) processes_.push_back(process);
}

void Keeper::leave(ProcessRecord& w, const std::string& reason) {
  // One that still learns the state is missed by nobody, and has nothing to hand over.
  const bool member = world_.sight(w.job, now_).members.contains(w.name());
  if (w.leaving == 0) {
    double until = now_ + options_.grace;
    for (const Id id : w.slots)
      if (const auto live = live_.find(id); live != live_.end()) until = std::min(until, live->second.until - 1);
    w.leaving = now_;
    w.leave_by = member ? std::max(now_, until) : now_;
    store_.save(w);
    const SlotRecord* s = slot(w.slots.front());
    log(w.job, "leave", reason, s == nullptr ? "" : s->host);
  }
  double& asked = asked_[w.id];
  if (!member || now_ - asked < kAskAgain) return;
  asked = now_;
  world_.ask(w.job, {"drain", w.name()});
}

// With a checkpoint, if there is time for it.
void Keeper::stop(JobRecord& job, const std::string& reason) {
  if (job.stopping == 0) {
    job.stopping = now_;
    job.reason = reason;
    store_.save(job);
    log(job.id, "stop", reason);
    const bool saves = !workers_of(job.id).empty();  // they have the state; a coordinator alone has none
    for (ProcessRecord& p : processes_) {
      if (p.job != job.id || p.ended > 0) continue;
      p.leaving = now_;
      p.leave_by = saves ? now_ + options_.grace : now_;
      store_.save(p);
    }
  }
  double& asked = asked_[-job.id];
  if (now_ - asked < kAskAgain) return;
  asked = now_;
  world_.ask(job.id, {"stop"});
}

// Machines that have to be left as soon as nobody is there any more, and those that nobody has used for a while.
void Keeper::give_back() {
  std::map<const Machine*, const SlotRecord*> unused;  // null: it is used
  for (const SlotRecord& s : slots_) {
    const auto known_live = live_.find(s.id);
    if (known_live == live_.end()) continue;
    Live& live = known_live->second;
    const bool taken = std::any_of(processes_.begin(), processes_.end(), [&](const ProcessRecord& p) {
      return p.ended == 0 && std::find(p.slots.begin(), p.slots.end(), s.id) != p.slots.end();
    });
    if (taken) live.idle_since = 0;
    else if (live.idle_since == 0) live.idle_since = now_;
    if (!taken && !live.leaving && now_ - live.idle_since > kUnused) wanted_ = 0;
    const Machine* machine = machine_of(s);
    if (machine == nullptr) continue;
    const bool free = !taken && (live.leaving || now_ - live.idle_since > options_.idle);
    const auto known = unused.emplace(machine, &s).first;
    if (!free) known->second = nullptr;
  }
  for (const auto& [machine, of] : unused) {
    if (of == nullptr || !source_of(*of)->release(*machine)) continue;
    for (const SlotRecord& s : slots_)
      if (machine_of(s) == machine) live_[s.id].leaving = true;
  }
}

}  // namespace elinvar::pool
