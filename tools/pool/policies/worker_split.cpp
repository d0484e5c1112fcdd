#include "tools/pool/policies/worker_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/pool/profiling/trials.h"

namespace elinvar::pool {
namespace {

struct WorkerSplit {
  WorkerShape shape;
  std::vector<Id> slots;
  Allocation allocation;
  Rate rate;
};

std::string text_of(const WorkerSplit& split) {
  const int n = workers(split.allocation);
  return fmt::format("{} worker{} of {} slot{}", n, n == 1 ? "" : "s", split.shape.width,
                     split.shape.width == 1 ? "" : "s");
}

// Returns the policy's split first, then all others that use every slot.
std::vector<WorkerSplit> splits(const Pool& pool, const Job& job, const Decision& decision) {
  std::vector<WorkerSplit> all;
  const auto add = [&](const WorkerShape& shape, std::vector<Id> slots) {
    if (slots.empty()) return;
    const Allocation allocation = allocation_of(pool, slots, shape);
    all.push_back({shape, std::move(slots), allocation, job.speed->rate(allocation, shape)});
  };
  add(decision.shape, decision.slots);
  for (const WorkerShape& shape : job.shapes)
    if (shape.recompute == decision.shape.recompute && shape.width != decision.shape.width)
      add(shape, split_slots(pool, job, decision.slots, shape.width));
  return all;
}

// Lower and upper bound of a rate.
double least(const Rate& rate) { return rate.samples * (1 - rate.error); }
double most(const Rate& rate) { return rate.samples * (1 + rate.error); }

// Returns by how many seconds the job ends sooner at rate `to` than at `from`.
double saved(const Job& job, double from, double to) {
  return to > 0 && from > 0 ? job.left() * (1 / from - 1 / to) : 0;
}

void choose_split(const Pool& pool, const Job& job, Decision& decision, bool trials) {
  const std::vector<WorkerSplit> all = splits(pool, job, decision);
  if (all.size() < 2) return;
  const bool runs = job.running();
  const WorkerSplit* now = &all.front();
  if (runs)  // keep the job's split even if the policy ignores splits
    for (const WorkerSplit& split : all)
      if (split.shape == job.shape) now = &split;
  const double change = runs ? job.costs.stop + job.costs.start : 0;
  const WorkerSplit* best = now;
  double gain = 0;
  for (const WorkerSplit& split : all) {
    if (&split == now || split.rate.error >= kFamiliar) continue;
    const double less = runs ? saved(job, most(now->rate), least(split.rate)) - change
                             : saved(job, now->rate.samples, split.rate.samples);
    if (less > gain) best = &split, gain = less;
  }
  const auto take = [&](const WorkerSplit& split) { decision.shape = split.shape, decision.slots = split.slots; };
  if (best != now) {
    decision.reason +=
        fmt::format("; {}: {:.3g} samples/s instead of {:.3g}", text_of(*best), best->rate.samples, now->rate.samples);
    return take(*best);
  }
  if (now->shape != decision.shape) take(*now);
  if (!trials || !runs || now->shape != job.shape || !measured_in(job, now->allocation, now->shape)) return;
  for (const WorkerSplit& split : all) {
    if (split.shape.width != 2 * now->shape.width || split.rate.error < kFamiliar || split.rate.samples <= 0) continue;
    const double cost = 2 * change + kTrialSeconds, hoped = saved(job, now->rate.samples, split.rate.samples);
    if (hoped <= cost) continue;
    if (trials_cost(job.measured, job.costs) + cost * now->rate.samples > kTrialBudget * job.left()) continue;
    take(split);
    decision.trial = true;
    decision.reason =
        fmt::format("tries {}, which might save {:.0f} s and costs {:.0f} s at most", text_of(split), hoped, cost);
    return;
  }
}

}  // namespace

std::vector<Id> split_slots(const Pool& pool, const Job& job, const std::vector<Id>& slots, int width) {
  const size_t many = slots.size() / static_cast<size_t>(width);
  if (slots.size() % static_cast<size_t>(width) != 0 || many < static_cast<size_t>(job.min_workers) ||
      many > static_cast<size_t>(job.max_workers))
    return {};
  std::set<Id> rest(slots.begin(), slots.end());
  std::vector<Id> divided;
  if (job.running() && job.shape.width == width)
    for (auto at = job.slots.begin(); at + width <= job.slots.end(); at += width)
      if (std::all_of(at, at + width, [&](Id id) { return rest.contains(id); })) {
        divided.insert(divided.end(), at, at + width);
        for (auto id = at; id != at + width; ++id) rest.erase(*id);
      }
  std::map<std::pair<std::string, std::string>, std::vector<Id>> hosts;
  for (const Slot& slot : pool.slots) {
    if (!rest.contains(slot.id)) continue;
    if (width > 1 && !slot.combinable) return {};
    hosts[{slot.kind, slot.host}].push_back(slot.id);
  }
  for (const auto& [host, there] : hosts) {
    if (there.size() % static_cast<size_t>(width) != 0) return {};
    divided.insert(divided.end(), there.begin(), there.end());
  }
  return divided;
}

Plan with_worker_split(const Pool& pool, Plan plan, bool trials) {
  for (size_t i = 0; i < plan.decisions.size(); ++i)
    if (!plan.decisions[i].slots.empty() && pool.jobs[i].shapes.size() > 1)
      choose_split(pool, pool.jobs[i], plan.decisions[i], trials);
  return plan;
}

}  // namespace elinvar::pool
