#include "tools/pool/plan/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "tensor/base/check.h"

namespace elinvar::pool {
namespace {

using SlotMap = std::unordered_map<Id, const Slot*>;

SlotMap by_id(const Pool& pool) {
  SlotMap slots;
  for (const Slot& slot : pool.slots) slots[slot.id] = &slot;
  return slots;
}

const Slot& slot_of(const SlotMap& slots, Id id) {
  const auto found = slots.find(id);
  check(found != slots.end(), "[pool] slot {} is not in the pool", id);
  return *found->second;
}

// Counts the slots of each kind.
Allocation count(const SlotMap& slots, const std::vector<Id>& ids) {
  Allocation counts;
  for (const Id id : ids)
    if (const auto slot = slots.find(id); slot != slots.end()) ++counts[slot->second->kind];
  return counts;
}

// Returns the slots of each worker, sorted.
std::set<std::vector<Id>> groups(const std::vector<Id>& slots, int width) {
  std::set<std::vector<Id>> found;
  for (size_t i = 0; i + width <= slots.size(); i += width) {
    std::vector<Id> group(slots.begin() + i, slots.begin() + i + width);
    std::sort(group.begin(), group.end());
    found.insert(group);
  }
  return found;
}

class Examiner {
 public:
  Examiner(const Pool& pool, const Plan& plan) : pool_(pool), plan_(plan), slots_(by_id(pool)) {}

  std::vector<std::string> examine() {
    if (plan_.decisions.size() != pool_.jobs.size()) {
      say("there are {} decisions for {} jobs", plan_.decisions.size(), pool_.jobs.size());
      return said_;
    }
    for (size_t i = 0; i < pool_.jobs.size(); ++i) {
      const Job& job = pool_.jobs[i];
      const Decision& decision = plan_.decisions[i];
      if (decision.job != job.id) {
        say("decision {} is about job {}, not {}", i, decision.job, job.id);
        return said_;
      }
      if (decision.reason.empty()) say("job {}: no reason is given", job.id);
      slots_of(job, decision);
      numbers(job, decision);
    }
    overtaking();
    return said_;
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    said_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void slots_of(const Job& job, const Decision& decision) {
    for (const Id id : decision.slots) {
      const auto found = slots_.find(id);
      if (found == slots_.end()) {
        say("job {} gets slot {}, which is not in the pool", job.id, id);
        continue;
      }
      const Slot& slot = *found->second;
      if (const auto [other, fresh] = taken_.emplace(id, job.id); !fresh)
        say("slot {} is given to job {} and to job {}", id, other->second, job.id);
      if (!job.allows(slot.kind)) say("job {} gets slot {} of kind {}, which it does not allow", job.id, id, slot.kind);
      if (slot.expiring(pool_.now)) say("job {} gets slot {}, which is about to go", job.id, id);
    }
  }

  void numbers(const Job& job, const Decision& decision) {
    if (decision.slots.empty()) {
      if (must_keep(job)) say("job {} has run for less than a turn and gets nothing", job.id);
      return;
    }
    const int width = decision.shape.width, slots = static_cast<int>(decision.slots.size());
    if (std::find(job.shapes.begin(), job.shapes.end(), decision.shape) == job.shapes.end())
      say("job {} cannot compute in the shape that it gets", job.id);
    if (width < 1 || slots % width != 0) {
      say("job {}: {} slots are no workers of {}", job.id, slots, width);
      return;
    }
    if (slots / width < job.min_workers || slots / width > job.max_workers)
      say("job {} gets {} workers, not {} to {}", job.id, slots / width, job.min_workers, job.max_workers);
    for (int i = 0; i < slots; ++i) {
      const auto first = slots_.find(decision.slots[i / width * width]), here = slots_.find(decision.slots[i]);
      if (first == slots_.end() || here == slots_.end()) continue;
      if (first->second->host != here->second->host || first->second->kind != here->second->kind)
        say("job {}: slots {} and {} are one worker on two hosts or kinds", job.id, first->first, here->first);
      if (width > 1 && !here->second->combinable)
        say("job {}: slot {} is in a worker with other slots, but slots of its kind cannot be combined", job.id,
            here->first);
    }
  }

  bool must_keep(const Job& job) const {
    if (!job.running() || pool_.now - job.since >= pool_.turn) return false;
    int there = 0;
    for (const std::vector<Id>& worker : groups(job.slots, job.shape.width))
      there += std::all_of(worker.begin(), worker.end(), [&](Id id) {
        const auto slot = slots_.find(id);
        return slot != slots_.end() && !slot->second->expiring(pool_.now);
      });
    return there >= job.min_workers;
  }

  void overtaking() {
    std::set<size_t> before;
    for (const size_t at : due_jobs(pool_)) {
      if (!plan_.decisions[at].slots.empty()) {
        before.insert(at);
        continue;
      }
      const Job* due = &pool_.jobs[at];
      for (size_t i = 0; i < pool_.jobs.size(); ++i) {
        if (before.count(i)) continue;
        const Allocation had = count(slots_, pool_.jobs[i].slots), gets = count(slots_, plan_.decisions[i].slots);
        for (const auto& [kind, n] : gets)
          if (due->allows(kind) && n > count_of(had, kind))
            say("job {} is due and waits while job {} gets more of {}", due->id, pool_.jobs[i].id, kind);
      }
      return;
    }
  }

  const Pool& pool_;
  const Plan& plan_;
  const SlotMap slots_;
  std::unordered_map<Id, Id> taken_;
  std::vector<std::string> said_;
};

}  // namespace

std::vector<size_t> due_jobs(const Pool& pool) {
  Allocation usable;
  for (const Slot& slot : pool.slots) usable[slot.kind] += !slot.expiring(pool.now);
  std::vector<size_t> due;
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    const Job& job = pool.jobs[i];
    if (job.running() || pool.now - job.since <= pool.patience) continue;
    int room = 0;
    for (const auto& [kind, n] : usable) {
      const bool runs =
          job.allows(kind) && std::any_of(job.shapes.begin(), job.shapes.end(), [&](const WorkerShape& shape) {
            return shape.width == 1 && job.speed->rate({{kind, job.min_workers}}, shape).samples > 0;
          });
      room += runs ? n : 0;
    }
    if (room >= job.min_workers) due.push_back(i);
  }
  std::stable_sort(due.begin(), due.end(), [&](size_t a, size_t b) { return pool.jobs[a].since < pool.jobs[b].since; });
  return due;
}

bool Job::allows(const std::string& kind) const {
  return kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::vector<std::string> violations(const Pool& pool, const Plan& plan) { return Examiner(pool, plan).examine(); }

std::vector<std::string> violations(const Pool& pool) {
  std::vector<std::string> said;
  std::set<Id> ids, jobs;
  std::map<Id, Id> owner;
  for (const Slot& slot : pool.slots)
    if (!ids.insert(slot.id).second) said.push_back(fmt::format("two slots have the number {}", slot.id));
  for (const Job& job : pool.jobs) {
    if (!jobs.insert(job.id).second) said.push_back(fmt::format("two jobs have the number {}", job.id));
    if (job.min_workers < 1 || job.min_workers > job.max_workers)
      said.push_back(fmt::format("job {} wants {} to {} workers", job.id, job.min_workers, job.max_workers));
    if (!job.speed) said.push_back(fmt::format("job {} has no speed model", job.id));
    if (job.shapes.empty()) said.push_back(fmt::format("job {} has no shape", job.id));
    for (const Id id : job.slots) {
      if (!ids.count(id)) said.push_back(fmt::format("job {} has slot {}, which is not in the pool", job.id, id));
      if (const auto [other, fresh] = owner.emplace(id, job.id); !fresh)
        said.push_back(fmt::format("slot {} belongs to job {} and to job {}", id, other->second, job.id));
    }
  }
  return said;
}

RescaleCosts completed(RescaleCosts seen, const RescaleCosts& otherwise) {
  for (const NamedCost& cost : kCosts)
    if (seen.*cost.seconds <= 0) seen.*cost.seconds = otherwise.*cost.seconds;
  return seen;
}

// A validation is due after each `every` steps, and is computed along with the step that follows.
double work_for(int64_t steps, double batch, const Validations& v) {
  const int64_t due = v.every > 0 && steps > 0 ? (steps - 1) / v.every : 0;
  return static_cast<double>(steps) * batch + static_cast<double>(due) * v.samples;
}

double work_of_all(int64_t steps, double batch, const Validations& v) { return work_for(steps, batch, v) + v.samples; }

double Job::seconds_left(double rate) const {
  return rate > 0 ? (running() ? 0 : costs.start) + left() / rate + costs.finish : kNever;
}

Allocation allocation_of(const Pool& pool, const std::vector<Id>& slots, const WorkerShape& shape) {
  const SlotMap all = by_id(pool);
  Allocation allocation;
  for (size_t i = 0; i < slots.size(); i += shape.width) ++allocation[slot_of(all, slots[i]).kind];
  return allocation;
}

Change change_of(const Job& job, const Allocation& before, const Allocation& kept, const Allocation& after,
                 const WorkerShape& shape) {
  const RescaleCosts& costs = job.costs;
  const int had = workers(before), keeps = workers(kept), gets = workers(after);
  Change change{.meanwhile = after};
  if (gets == 0) {
    change.stall = had == 0 ? 0 : costs.stop;
    change.samples = had == 0 ? 0 : change.stall * job.speed->rate(before, job.shape).samples;
    return change;
  }
  const double rate = job.speed->rate(after, shape).samples;
  if (keeps == 0) {
    change.anew = true;
    change.stall = (had == 0 ? 0 : costs.stop) + costs.start;
    change.samples = change.stall * rate;
    return change;
  }
  if (had > keeps) change.stall += costs.leave_stall;
  if (gets > keeps) {
    change.stall += costs.join_stall;
    change.ramp = costs.join;
    change.meanwhile = kept;
  }
  change.samples = change.stall * rate;
  if (change.ramp > 0) change.samples += change.ramp * std::max(0.0, rate - job.speed->rate(kept, shape).samples);
  return change;
}

Change change_of(const Pool& pool, const Job& job, const std::vector<Id>& slots, const WorkerShape& shape) {
  const Allocation before = allocation_of(pool, job.slots, job.shape), after = allocation_of(pool, slots, shape);
  Allocation kept;
  if (job.running() && shape == job.shape) {
    const std::set<std::vector<Id>> had = groups(job.slots, shape.width), gets = groups(slots, shape.width);
    std::vector<Id> stay;
    for (const std::vector<Id>& group : had)
      if (gets.count(group)) stay.insert(stay.end(), group.begin(), group.end());
    kept = allocation_of(pool, stay, shape);
  }
  return change_of(job, before, kept, after, shape);
}

}  // namespace elinvar::pool
