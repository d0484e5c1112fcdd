#include "tools/pool/policies/assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace elinvar::pool {
namespace {

class Assigner {
 public:
  explicit Assigner(const Pool& pool) : pool_(pool) {
    for (const Slot& slot : pool.slots)
      if (!slot.expiring(pool.now)) by_id_[slot.id] = &slot, free_[slot.kind][slot.host].push_back(&slot);
    // Slots are taken from the end of a host's list, so those that stay longest are sorted last.
    for (auto& [kind, hosts] : free_)
      for (auto& [host, slots] : hosts)
        std::sort(slots.begin(), slots.end(), [](const Slot* a, const Slot* b) {
          return std::make_tuple(a->until, -a->id) < std::make_tuple(b->until, -b->id);
        });
  }

  // Returns the slots of the job's workers that stay, at most as many of each kind as the grant has.
  std::vector<Id> keep(const Job& job, const Grant& grant) {
    struct Worker {
      std::vector<Id> slots;
      const Slot* first;
      double until;
    };
    std::vector<Worker> present;
    std::map<std::string, int> on_host;
    const size_t width = job.shape.width;
    for (size_t at = 0; at + width <= job.slots.size(); at += width) {
      Worker worker{{job.slots.begin() + at, job.slots.begin() + at + width}, nullptr, kNever};
      bool there = true;
      for (const Id id : worker.slots) {
        const auto slot = by_id_.find(id);
        there = there && slot != by_id_.end();
        if (there) worker.first = slot->second, worker.until = std::min(worker.until, slot->second->until);
      }
      if (!there) continue;
      ++on_host[worker.first->host];
      present.push_back(std::move(worker));
    }
    std::stable_sort(present.begin(), present.end(), [&](const Worker& a, const Worker& b) {
      return std::make_tuple(a.until, on_host[a.first->host]) > std::make_tuple(b.until, on_host[b.first->host]);
    });
    Allocation wanted = grant.allocation;
    std::set<Id> stay;
    for (const Worker& worker : present) {
      if (wanted[worker.first->kind] == 0) continue;
      --wanted[worker.first->kind];
      stay.insert(worker.slots.begin(), worker.slots.end());
    }
    std::vector<Id> kept;  // in the job's order, so that without a change the plan stays the same
    for (const Id id : job.slots)
      if (stay.count(id)) take(*by_id_[id]), kept.push_back(id);
    return kept;
  }

  // Adds workers of a kind to `slots`, the job's. Returns how many; fewer than `count` only if they are wider than one
  // slot.
  int add(const std::string& kind, int count, int width, std::vector<Id>& slots) {
    std::map<std::string, int> on_host;
    for (const Id id : slots) ++on_host[by_id_[id]->host];
    int added = 0;
    std::map<std::string, std::vector<const Slot*>>& hosts = free_[kind];
    while (added < count) {
      std::vector<const Slot*>* best = nullptr;
      std::tuple<double, int, int> rank;
      const int wanted = (count - added) * width;
      for (auto& [host, on] : hosts) {
        const int room = static_cast<int>(on.size());
        if (room < width) continue;
        // Among hosts that stay equally long, prefers those where the job runs, then one that it fills, then the
        // fullest one.
        const std::tuple<double, int, int> here{on.back()->until, on_host.count(host) ? 1 : 0,
                                                room >= wanted ? 1000000 - room : room};
        if (!best || here > rank) best = &on, rank = here;
      }
      if (!best) break;
      do {
        for (int k = 0; k < width; ++k) slots.push_back(best->back()->id), best->pop_back();
        ++added;
      } while (added < count && static_cast<int>(best->size()) >= width && best->back()->until == std::get<0>(rank));
      ++on_host[by_id_[slots.back()]->host];
    }
    return added;
  }

  void give_back(const std::vector<Id>& slots) {
    for (const Id id : slots) {
      const Slot* slot = by_id_[id];
      free_[slot->kind][slot->host].push_back(slot);
    }
  }

 private:
  void take(const Slot& slot) {
    std::vector<const Slot*>& there = free_[slot.kind][slot.host];
    there.erase(std::find(there.begin(), there.end(), &slot));
  }

  const Pool& pool_;
  std::unordered_map<Id, const Slot*> by_id_;
  std::map<std::string, std::map<std::string, std::vector<const Slot*>>> free_;  // by kind and host
};

}  // namespace

Plan assign(const Pool& pool, const std::vector<Grant>& grants) {
  Assigner assigner(pool);
  Plan plan;
  std::vector<Allocation> missing(grants.size());
  for (size_t i = 0; i < grants.size(); ++i) {
    const Job& job = pool.jobs[i];
    const Grant& grant = grants[i];
    Decision decision{job.id, {}, grant.shape, grant.reason};
    missing[i] = grant.allocation;
    if (!grant.allocation.empty() && job.running() && grant.shape == job.shape) {
      decision.slots = assigner.keep(job, grant);
      for (const auto& [kind, n] : allocation_of(pool, decision.slots, grant.shape)) missing[i][kind] -= n;
    }
    plan.decisions.push_back(std::move(decision));
  }
  // Wide workers first, because they need several slots on one host.
  std::vector<size_t> order(grants.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return grants[a].shape.width > grants[b].shape.width; });
  for (const size_t i : order) {
    const int width = grants[i].shape.width;
    Decision& decision = plan.decisions[i];
    int lacks = 0;
    for (const auto& [kind, n] : missing[i])
      if (n > 0) lacks += n - assigner.add(kind, n, width, decision.slots);
    if (lacks == 0) continue;
    const int got = static_cast<int>(decision.slots.size()) / width;
    if (got < pool.jobs[i].min_workers) {
      assigner.give_back(decision.slots);
      decision.slots.clear();
    }
    decision.reason += fmt::format("; no host has {} slots free for {} of its workers", width, lacks);
  }
  return plan;
}

}  // namespace elinvar::pool
