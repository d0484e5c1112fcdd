#include "tools/pool/daemon/planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tensor/base/check.h"
#include "tools/pool/profiling/speed.h"

namespace elinvar::pool {
namespace {

constexpr double kFirstAnswers = 60;  // seconds that the first plan waits for all sources to answer

bool combinable(const SlotRecord& slot) { return slot.device == "cpu"; }  // a worker has one GPU

}  // namespace

std::vector<std::vector<Id>> places_of(const Decision& decision) {
  std::vector<std::vector<Id>> places;
  const auto width = static_cast<size_t>(std::max(1, decision.shape.width));
  for (size_t i = 0; i + width <= decision.slots.size(); i += width) {
    places.emplace_back(decision.slots.begin() + static_cast<int64_t>(i),
                        decision.slots.begin() + static_cast<int64_t>(i + width));
    std::sort(places.back().begin(), places.back().end());
  }
  return places;
}

const Decision* Planner::decision(Id job) const {
  const auto found = planned_.find(job);
  return found == planned_.end() || !found->second.decision ? nullptr : &*found->second.decision;
}

bool Planner::reshaping(Id job) const {
  const auto found = planned_.find(job);
  return found != planned_.end() && found->second.reshaping;
}

void Planner::clock_was_set_back() {
  began_.reset();
  planned_at_.reset();
  requested_ = true;
}

bool Planner::reshapes(const JobRecord& j) const {
  const Decision* decided = decision(j.id);
  return reshaping(j.id) && decided != nullptr && !decided->slots.empty();
}

// Returns the shapes that a job's workers can have: with and without recomputation, and with several slots if a host
// has combinable ones.
std::vector<WorkerShape> Planner::shapes_of(const JobRecord& job, double now) const {
  std::map<std::pair<std::string, std::string>, int> of_host;
  int widest = 1;
  for (const auto& [id, state] : inventory_.slots()) {
    const SlotRecord& s = state.record;
    if (!placement_.usable(id, now) || !combinable(s) ||
        (!job.kinds.empty() && std::find(job.kinds.begin(), job.kinds.end(), s.kind) == job.kinds.end()))
      continue;
    widest = std::max(widest, ++of_host[{s.source + " " + s.host, s.kind}]);
  }
  std::vector<WorkerShape> shapes;
  for (int width = 1; width <= std::max(widest, job.shape.width); width *= 2)
    for (const bool recompute : {false, true}) shapes.push_back({width, recompute});
  return shapes;
}

// A decision counts from the moment it is made, although the workers may still be starting.
std::vector<Id> Planner::slots_of(const JobRecord& j, double now) const {
  std::vector<Id> slots;
  if (j.state != JobRecord::State::running && !reshapes(j)) return slots;
  const auto add = [&](const std::vector<Id>& place) {
    if (placement_.usable(place, now)) slots.insert(slots.end(), place.begin(), place.end());
  };
  if (const Decision* decided = decision(j.id); decided != nullptr) {
    for (const std::vector<Id>& place : places_of(*decided)) add(place);
  } else {
    for (const ProcessRecord* w : processes_.workers_of(j.id))
      if (placement_.stays(*w)) add(w->slots);
  }
  return slots;
}

Job Planner::job(const JobRecord& j, double now) const {
  Job job;
  job.id = j.id;
  job.name = j.name;
  job.min_workers = j.min_workers;
  job.max_workers = j.max_workers;
  job.fixed_workers = j.fixed_workers;
  job.kinds = j.kinds;
  job.shapes = shapes_of(j, now);
  job.priority = j.priority;
  job.submitted = j.submitted;
  job.deadline = j.deadline;
  job.virtual_ranks = j.virtual_ranks;
  const Overheads overheads =
      options_.overheads ? options_.overheads(j) : Overheads{.costs = {}, .validations = j.validations};
  job.costs = overheads.costs;
  const auto batch = static_cast<double>(j.batch);
  const int64_t all = std::max({j.steps, j.step, int64_t{1}});
  job.done = work_for(j.step, batch, overheads.validations);
  // A running job always has something left.
  job.total = std::max(work_of_all(all, batch, overheads.validations), job.done + batch);
  job.since = j.since;
  job.measured = store_.measurements.of(j.id);
  job.speed = options_.speed(j, job.measured);
  job.shape = reshapes(j) ? decision(j.id)->shape : j.shape;
  job.slots = slots_of(j, now);
  return job;
}

Pool Planner::pool(const std::vector<JobRecord>& jobs, double now) const {
  Pool pool{.now = now,
            .slots = {},
            .jobs = {},
            .horizon = options_.horizon,
            .patience = options_.patience,
            .turn = options_.turn};
  for (const auto& [id, slot] : inventory_.slots())
    if (placement_.usable(id, now))
      pool.slots.push_back({.id = id,
                            .kind = slot.record.kind,
                            .host = slot.record.host,
                            .since = slot.record.since,
                            .until = slot.until,
                            .combinable = combinable(slot.record)});
  for (const JobRecord& j : jobs)
    if (!j.cancel && (j.stopping == 0 || reshapes(j)) && now >= j.retry_at) pool.jobs.push_back(job(j, now));
  return pool;
}

void Planner::plan_if_due(std::vector<JobRecord>& jobs, bool answered, double now) {
  if (!began_) began_ = now;
  if (!requested_ && planned_at_ && now - *planned_at_ < options_.replan) return;
  if (!answered && now - *began_ < kFirstAnswers) return;
  planned_at_ = now;
  requested_ = false;
  const Pool pool = this->pool(jobs, now);
  Plan plan;
  try {
    plan = options_.policy(pool);
  } catch (const std::exception& error) {
    return store_.log.add(now, 0, "plan", fmt::format("the policy fails, and nothing changes: {}", error.what()));
  }
  if (const std::vector<std::string> wrong = violations(pool, plan); !wrong.empty())
    return store_.log.add(now, 0, "plan", "a plan that breaks the rules is not carried out: " + wrong.front());
  std::set<Id> decided;
  for (size_t i = 0; i < plan.decisions.size(); ++i) {
    accept(pool, pool.jobs[i], plan.decisions[i], jobs, now);
    decided.insert(plan.decisions[i].job);
  }
  for (auto& [job, planned] : planned_)
    if (!decided.contains(job)) planned.decision.reset();
  int usable = 0;  // slots, if each job had all its workers, as wide as planned
  for (size_t i = 0; i < pool.jobs.size(); ++i) usable += pool.jobs[i].max_workers * plan.decisions[i].shape.width;
  wanted_ = std::max(0, usable - static_cast<int>(pool.slots.size()));
}

void Planner::accept(const Pool& pool, const Job& job, const Decision& decision, std::vector<JobRecord>& jobs,
                     double now) {
  const Allocation allocation = allocation_of(pool, decision.slots, decision.shape);
  if (!profiler_.predicted(job.id, allocation, decision.shape)) {
    const Rate rate = job.speed->rate(allocation, decision.shape);
    // Workers that the job has already, for example after a restart of the daemon, are measured and not predicted.
    const bool has = job.shape == decision.shape && allocation_of(pool, job.slots, job.shape) == allocation;
    profiler_.predict(job.id, {.allocation = allocation,
                               .shape = decision.shape,
                               .rate = has || rate.error >= kUnknown ? 0 : rate.samples,
                               .error = rate.error,
                               .trial = decision.trial});
  }
  Planned& planned = planned_[job.id];
  const bool waits = decision.slots.empty();
  const bool same =
      planned.decision && planned.decision->slots == decision.slots && planned.decision->shape == decision.shape;
  if (!same || (waits && planned.decision->reason != decision.reason)) {
    std::set<std::string> hosts;
    for (const Id id : decision.slots) hosts.insert(inventory_.find(id)->record.host);
    const size_t slots = decision.slots.size();
    store_.log.add(
        now, job.id, waits ? "waits" : "plan",
        waits ? decision.reason : fmt::format("{} slot{}: {}", slots, slots == 1 ? "" : "s", decision.reason),
        fmt::format("{}", fmt::join(hosts, " ")));
  }
  for (JobRecord& record : jobs)
    if (record.id == job.id && record.state == JobRecord::State::waiting && waits && record.reason != decision.reason) {
      record.reason = decision.reason;
      store_.jobs.save(record);
    }
  if (waits) planned.reshaping = false;
  planned.decision = decision;
}

}  // namespace elinvar::pool
