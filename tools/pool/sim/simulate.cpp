#include "tools/pool/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tensor/base/check.h"
#include "tools/pool/policies/advisor.h"
#include "tools/pool/policies/worker_split.h"
#include "tools/pool/profiling/trials.h"
#include "tools/pool/sim/dice.h"
#include "tools/pool/sim/simulated_job.h"

namespace elinvar::pool {
namespace {

constexpr double kEnd = 1e-6;                       // seconds; closer times count as equal
constexpr double kReview = kTrialSeconds * 1.0001;  // seconds until a trial is over

struct Event {
  enum Type { kDown, kNotice, kUp, kSubmit } type;
  double time;
  size_t of;  // index of a host or job in the trace
};

class Simulation {
 public:
  Simulation(const Trace& trace, const Table& table, Plan (*policy)(const Pool&), const Conditions& settings)
      : trace_(trace), table_(table), policy_(policy), settings_(settings), dice_(settings.seed, "measurements") {
    for (size_t h = 0; h < trace.hosts.size(); ++h) {
      const TraceHost& host = trace.hosts[h];
      events_.push_back({Event::kUp, host.from, h});
      if (host.until == kNever) continue;
      if (host.notice > 0) events_.push_back({Event::kNotice, std::max(host.from, host.until - host.notice), h});
      events_.push_back({Event::kDown, host.until, h});
    }
    jobs_.reserve(trace.jobs.size());
    for (size_t j = 0; j < trace.jobs.size(); ++j) {
      events_.push_back({Event::kSubmit, trace.jobs[j].submitted, j});
      jobs_.push_back(simulated_job(trace, trace.jobs[j], static_cast<Id>(j) + 1, table, settings.models));
    }
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.time != b.time ? a.time < b.time : a.type < b.type;
    });
  }

  Outcome run() {
    for (;;) {
      const double next = std::min(next_time(), settings_.until);
      if (next == kNever) break;
      advance(next);
      if (now_ >= settings_.until) break;
      finish_jobs();
      for (; next_event_ < events_.size() && events_[next_event_].time <= now_ + kEnd; ++next_event_)
        happen(events_[next_event_]);
      if (now_ + kEnd >= plan_at()) plan();
      if (next_event_ == events_.size() &&
          std::all_of(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.ended; }))
        break;
    }
    for (SimulatedJob& j : jobs_) {
      j.outcome.samples = j.job.done;
      outcome_.work += j.job.done / j.reference;
      if (j.here && !j.ended && !j.job.running()) j.outcome.waited += now_ - j.job.since;
      outcome_.jobs.push_back(j.outcome);
    }
    outcome_.seconds = now_;
    if (outcome_.sure > 0) outcome_.sure_error /= outcome_.sure;
    return std::move(outcome_);
  }

 private:
  // --- Time.

  bool active() const {
    return std::any_of(jobs_.begin(), jobs_.end(), [](const SimulatedJob& j) { return j.here && !j.ended; });
  }

  double plan_at() const {
    if (changed_) return std::max(now_, last_plan_ + settings_.settle);
    // If nothing is to come and no job runs even after the longest patience, a further plan would not differ.
    const bool stuck = next_event_ == events_.size() &&
                       std::none_of(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.job.running(); }) &&
                       now_ > last_activity_ + settings_.patience + settings_.period;
    return active() && !stuck ? last_plan_ + settings_.period : kNever;
  }

  double next_time() const {
    double next = plan_at();
    if (next_event_ < events_.size()) next = std::min(next, events_[next_event_].time);
    for (const SimulatedJob& j : jobs_)
      if (j.job.running())
        next = std::min({next, j.over_at < kNever ? j.over_at : j.progress.end(j.job.left()), review_at(j)});
    return std::max(next, now_);
  }

  // Returns when a new size has been measured for long enough to learn from it.
  double review_at(const SimulatedJob& j) const {
    if (settings_.models != Belief::kLearned || j.progress.steady_since() == kNever) return kNever;
    const double at = j.progress.steady_since() + kReview;
    return at > now_ ? at : kNever;
  }

  void advance(double to) {
    const double seconds = to - now_;
    outcome_.available += seconds * static_cast<double>(slots_.size());
    for (const Leaving& slot : leaving_)
      if (!slot.taken) outcome_.held += std::clamp(slot.until - now_, 0.0, seconds);
    std::erase_if(leaving_, [&](const Leaving& slot) { return slot.until <= to; });
    for (SimulatedJob& j : jobs_) {
      if (!j.job.running()) continue;
      const Progress::Part part = j.progress.advance(to);
      j.job.done = std::min(j.job.total, j.job.done + part.samples);
      outcome_.held += seconds * static_cast<double>(j.job.slots.size());
      outcome_.standing += part.standing * static_cast<double>(j.job.slots.size());
      if (part.steady > 0) measure(j, part.steady);
    }
    now_ = to;
    if (settings_.models == Belief::kLearned)
      for (const SimulatedJob& j : jobs_)
        if (j.job.running() && std::abs(now_ - j.progress.steady_since() - kReview) < kEnd) changed_ = true;
  }

  // --- Learning.

  void measure(SimulatedJob& j, double seconds) {
    const Allocation& allocation = j.allocation;
    if (j.job.measured.empty() || j.job.measured.back().workers != allocation ||
        j.job.measured.back().shape != j.job.shape) {
      const double rate = j.progress.rate() * (1 + settings_.noise * std::clamp(dice_.normal(), -3.0, 3.0));
      j.job.measured.push_back({allocation, j.job.shape, 0, rate, j.promised, j.promised_error, j.trial});
      if (settings_.models == Belief::kLearned && j.promised > 0 && j.promised_error < kSure) {
        outcome_.sure_error += std::abs(j.promised - j.progress.rate()) / j.progress.rate();
        ++outcome_.sure;
      }
    }
    j.job.measured.back().seconds += seconds;
  }

  void learn(SimulatedJob& j) {
    if (settings_.models != Belief::kLearned) return;
    const size_t sizes = j.job.measured.size();
    const double seconds = sizes > 0 ? j.job.measured.back().seconds : 0;
    if (j.job.speed == j.truth || sizes != j.fitted_sizes || seconds > 2 * j.fitted_seconds) {
      if (j.job.speed == j.truth)
        if (const auto found = history_.find(j.job.name); found != history_.end()) j.similar = found->second;
      auto fitted = std::make_shared<FittedSpeed>(j.job.virtual_ranks, table_.at(j.job.name).batch, j.job.measured,
                                                  j.similar.get());
      j.fitted_sizes = sizes;
      j.fitted_seconds = seconds;
      if (!j.job.measured.empty()) history_[j.job.name] = fitted;
      j.job.speed = std::move(fitted);
    }
  }

  // --- Events.

  void happen(const Event& event) {
    changed_ = true;
    last_activity_ = now_;
    if (event.type == Event::kSubmit) {
      jobs_[event.of].here = true;
      return;
    }
    const TraceHost& host = trace_.hosts[event.of];
    if (event.type == Event::kUp) {
      for (int i = 0; i < host.slots; ++i) {
        of_host_[event.of].push_back(next_slot_);
        const bool told = host.notice > 0 && host.until - host.notice <= now_;
        slots_[next_slot_] = {next_slot_, host.kind, host.host, now_, told ? host.until : kNever};
        ++next_slot_;
      }
    } else if (event.type == Event::kNotice) {
      for (const Id id : of_host_[event.of]) slots_[id].until = host.until;
    } else {
      lose(of_host_[event.of]);
      of_host_.erase(event.of);
    }
    refresh_slots();
  }

  // Removes slots; workers on them die.
  void lose(const std::vector<Id>& lost) {
    const auto gone = [&](Id id) { return std::find(lost.begin(), lost.end(), id) != lost.end(); };
    for (const Id id : lost) slots_.erase(id);
    std::erase_if(leaving_, [&](const Leaving& slot) { return gone(slot.id); });
    refresh_slots();
    for (SimulatedJob& j : jobs_) {
      const int width = j.job.shape.width;
      std::vector<Id> rest;
      for (auto at = j.job.slots.begin(); at != j.job.slots.end(); at += width)
        if (std::none_of(at, at + width, gone)) rest.insert(rest.end(), at, at + width);
      if (rest.size() == j.job.slots.size()) continue;
      ++outcome_.deaths;
      ++j.outcome.changes;
      if (static_cast<int>(rest.size()) / width >= j.job.min_workers) {
        j.job.slots = rest;
        j.promised = 0;
        j.allocation = allocation_of(pool_slots_, rest, j.job.shape);
        Change change;
        change.stall = j.job.costs.death_stall;
        j.progress.change(now_, change, 0, 0, rate_of(j, j.allocation));
        continue;
      }
      // Too few workers are left to continue. Any that are left save the state; otherwise progress since the last
      // checkpoint is lost.
      if (rest.empty()) {
        const double undone = std::min(j.job.done, j.progress.since_checkpoint(now_, j.job.costs.checkpoint_every));
        j.job.done -= undone;
        outcome_.undone += undone / j.reference;
      }
      release(rest, j.job.costs.stop);
      j.job.slots.clear();
      j.over_at = kNever;
      j.job.since = now_;
    }
  }

  void finish_jobs() {
    for (SimulatedJob& j : jobs_) {
      if (!j.job.running() || j.job.left() > kEnd * std::max(1.0, j.job.total)) continue;
      if (j.over_at == kNever) j.over_at = std::max(now_, j.progress.steady_since()) + j.job.costs.finish;
      if (j.over_at > now_ + kEnd) continue;
      j.ended = true;
      last_activity_ = now_;
      j.outcome.ended = now_;
      j.job.done = j.job.total;
      j.job.slots.clear();
      changed_ = true;
    }
  }

  double rate_of(const SimulatedJob& j, const Allocation& allocation) const {
    return allocation.empty() ? 0 : j.truth->rate(allocation, j.job.shape).samples;
  }

  // The slots become free for others once their workers have left.
  void release(const std::vector<Id>& slots, double seconds) {
    for (const Id id : slots)
      if (slots_.count(id)) leaving_.push_back({id, now_ + seconds, false});
  }

  // Returns how long the next job waits for these slots; meanwhile they count as its own.
  double take_over(const std::vector<Id>& slots) {
    double wait = 0;
    for (Leaving& leaving : leaving_)
      if (std::find(slots.begin(), slots.end(), leaving.id) != slots.end()) {
        wait = std::max(wait, leaving.until - now_);
        leaving.taken = true;
      }
    return wait;
  }

  // --- Plans.

  void refresh_slots() {
    pool_slots_.slots.clear();
    for (const auto& [id, slot] : slots_) pool_slots_.slots.push_back(slot);
  }

  void plan() {
    last_plan_ = now_;
    changed_ = false;
    Pool pool;
    pool.now = now_;
    pool.slots = pool_slots_.slots;
    pool.horizon = settings_.horizon;
    pool.patience = settings_.patience;
    pool.turn = settings_.turn;
    std::vector<SimulatedJob*> in;
    for (SimulatedJob& j : jobs_)
      if (j.here && !j.ended) {
        learn(j);
        in.push_back(&j);
        pool.jobs.push_back(j.job);
      }
    if (in.empty()) return;
    const auto began = std::chrono::steady_clock::now();
    Plan plan = policy_(pool);
    if (settings_.models == Belief::kLearned)
      plan = with_advice(pool, with_worker_split(pool, std::move(plan), /*trials=*/true));
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    outcome_.planning += took;
    outcome_.slowest_plan = std::max(outcome_.slowest_plan, took);
    outcome_.worst_gap = std::max(outcome_.worst_gap, plan.gap);
    ++outcome_.plans;
    if (const std::vector<std::string> wrong = violations(pool, plan); !wrong.empty())
      fail("the plan at {:.0f} s breaks the rules: {}", now_, fmt::join(wrong, "; "));
    reconcile(pool, plan, in);
  }

  void reconcile(const Pool& pool, const Plan& plan, const std::vector<SimulatedJob*>& in) {
    // Jobs that give up slots come first, because the next ones wait until their workers have left.
    std::vector<Change> changes(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const Decision& decision = plan.decisions[i];
      const Job& job = in[i]->job;
      if (decision.slots == job.slots && decision.shape == job.shape) continue;
      changes[i] = change_of(pool, job, decision.slots, decision.shape);
      std::vector<Id> given;
      for (const Id id : job.slots)
        if (std::find(decision.slots.begin(), decision.slots.end(), id) == decision.slots.end()) given.push_back(id);
      release(given, changes[i].anew || decision.slots.empty() ? job.costs.stop : job.costs.leave);
    }
    for (size_t i = 0; i < in.size(); ++i) {
      SimulatedJob& j = *in[i];
      const Decision& decision = plan.decisions[i];
      if (decision.slots == j.job.slots && decision.shape == j.job.shape) continue;
      if (!j.job.running() && decision.slots.empty()) continue;
      if (settings_.keep_log)
        outcome_.log.push_back(fmt::format("{:9.1f} s  job {} ({}): {} slots, had {}: {}", now_, j.job.id, j.job.name,
                                           decision.slots.size(), j.job.slots.size(), decision.reason));
      last_activity_ = now_;
      ++outcome_.changes;
      ++j.outcome.changes;
      std::vector<Id> fresh;
      for (const Id id : decision.slots)
        if (std::find(j.job.slots.begin(), j.job.slots.end(), id) == j.job.slots.end()) fresh.push_back(id);
      const double wait = take_over(fresh);
      const bool waited = !j.job.running(), anew = changes[i].anew;
      if (waited) j.outcome.waited += now_ - j.job.since;
      if (waited || anew || decision.slots.empty()) j.job.since = now_;
      if (j.outcome.started == kNever) j.outcome.started = now_;
      j.job.slots = decision.slots;
      j.job.shape = decision.shape;
      if (waited || anew || decision.slots.empty()) j.over_at = kNever;
      if (decision.slots.empty()) continue;
      j.allocation = allocation_of(pool, decision.slots, decision.shape);
      const Rate promised = j.job.speed->rate(j.allocation, decision.shape);
      j.promised = promised.samples;
      j.promised_error = promised.error;
      j.trial = decision.trial;
      if (waited || anew) j.progress = Progress(now_);
      j.progress.change(now_, changes[i], wait, rate_of(j, changes[i].meanwhile), rate_of(j, j.allocation));
    }
  }

  struct Leaving {
    Id id;
    double until;
    bool taken;
  };

  const Trace& trace_;
  const Table& table_;
  Plan (*policy_)(const Pool&);
  const Conditions settings_;
  Dice dice_;
  std::vector<Event> events_;
  size_t next_event_ = 0;
  double now_ = 0, last_plan_ = -kNever, last_activity_ = 0;
  bool changed_ = false;
  Id next_slot_ = 1;
  std::map<Id, Slot> slots_;
  std::map<size_t, std::vector<Id>> of_host_;  // by period of the trace
  Pool pool_slots_;                            // slots only
  std::vector<Leaving> leaving_;
  std::vector<SimulatedJob> jobs_;
  std::map<std::string, std::shared_ptr<const FittedSpeed>> history_;
  Outcome outcome_;
};

}  // namespace

Outcome simulate(const Trace& trace, const Table& table, Plan (*policy)(const Pool&), const Conditions& settings) {
  return Simulation(trace, table, policy, settings).run();
}

}  // namespace elinvar::pool
