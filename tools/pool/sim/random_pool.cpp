#include "tools/pool/sim/random_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/pool/profiling/heterogeneous_split.h"
#include "tools/pool/sim/dice.h"

namespace elinvar::pool {
namespace {

// A speed by the formula of tools/pool/profiling/speed.h; virtual ranks are not divided.
class SyntheticSpeed : public Speed {
 public:
  SyntheticSpeed(Dice& dice, int virtual_ranks, bool needs_recomputation)
      : virtual_ranks_(virtual_ranks), needs_recomputation_(needs_recomputation) {
    b_ = dice.lognormal(1, 1);
    a_ = b_ * 0.05 * dice.uniform();
    c_ = b_ * 0.2 * dice.uniform();
    d_ = b_ * 0.01 * dice.uniform();
    samples_ = dice.lognormal(100, 1);
  }
  Rate rate(const Allocation& allocation, const WorkerShape& shape) const override {
    if (allocation.empty()) return {};
    const double n = workers(allocation), b = b_ * (shape.recompute ? 1.3 : 1) / shape.width;
    std::vector<DeviceGroup> devices;
    for (const auto& [kind, count] : allocation) {
      if (needs_recomputation_ && !shape.recompute && kind != "kind-0") return {};
      const double speed = 1 / (1 + 0.7 * (kind.back() - '0'));
      devices.push_back({count, virtual_ranks_ / b * speed});
    }
    return {samples_ / (a_ + heterogeneous_split(virtual_ranks_, devices).seconds + c_ * (n - 1) / n + d_ * (n - 1)),
            0};
  }

 private:
  int virtual_ranks_;
  bool needs_recomputation_;
  double a_, b_, c_, d_, samples_;
};

Job synthetic_job(Dice& dice, Id id, double now, int most, bool odd) {
  Job job;
  job.id = id;
  job.name = fmt::format("job-{}", id);
  job.virtual_ranks = 64;
  job.max_workers = 1 + dice.below(most);
  job.min_workers = 1 + dice.below(std::max(1, job.max_workers / 2));
  job.fixed_workers = job.min_workers + dice.below(job.max_workers - job.min_workers + 1);
  job.submitted = job.since = now - dice.exponential(1200);
  const bool needs = odd && dice.uniform() < 0.2;
  if (odd) {
    job.shapes = {{1, false}, {1, true}};
    if (dice.uniform() < 0.5) job.shapes.push_back({2, false});
    job.priority = dice.below(4) == 0 ? 1 : 0;
    if (dice.uniform() < 0.2) job.deadline = now + dice.exponential(3600);
  }
  job.speed = std::make_shared<SyntheticSpeed>(dice, job.virtual_ranks, needs);
  job.shape = job.shapes.front();
  job.total = job.speed->rate({{"kind-0", job.min_workers}}, {1, true}).samples * dice.lognormal(3000, 1);
  job.done = job.total * dice.uniform() * 0.9;
  job.costs.start = 5 + 10 * dice.uniform();
  return job;
}

std::vector<Slot> synthetic_slots(int slots, int kinds, int a_host) {
  std::vector<Slot> all;
  for (int i = 0; i < slots; ++i)
    all.push_back({i + 1, fmt::format("kind-{}", i / a_host % kinds), fmt::format("host-{}", i / a_host), 0, kNever});
  return all;
}

}  // namespace

Pool random_pool(uint64_t seed, int slots, int jobs, int kinds) {
  Dice dice(seed, "pool");
  Pool pool;
  pool.now = 10000;
  pool.slots = synthetic_slots(slots, kinds, 1 + dice.below(4));
  std::vector<Slot> free = pool.slots;
  for (size_t i = free.size(); i-- > 1;) std::swap(free[i], free[dice.below(static_cast<int>(i) + 1)]);
  for (int j = 0; j < jobs; ++j) {
    Job job = synthetic_job(dice, 100 + j, pool.now, 12, true);
    if (kinds > 1 && dice.uniform() < 0.5) job.kinds = {fmt::format("kind-{}", dice.below(kinds))};
    if (kinds > 1 && dice.uniform() < 0.3) job.kinds = {"kind-0", "kind-1"};
    if (dice.uniform() < 0.6) {
      const int wanted = job.min_workers + dice.below(job.max_workers - job.min_workers + 1);
      for (size_t i = free.size(); i-- > 0 && static_cast<int>(job.slots.size()) < wanted;)
        if (job.allows(free[i].kind)) {
          job.slots.push_back(free[i].id);
          free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
        }
      // A job that has lost workers may temporarily have fewer than its minimum.
    }
    pool.jobs.push_back(std::move(job));
  }
  for (Slot& slot : pool.slots)
    if (dice.uniform() < 0.1) slot.until = pool.now + 300 * dice.uniform();
  return pool;
}

Pool busy_pool(uint64_t seed, int slots, int jobs, int kinds, Plan (*policy)(const Pool&)) {
  Dice dice(seed, "busy");
  Pool pool;
  pool.now = 10000;
  pool.slots = synthetic_slots(slots, kinds, 1);
  for (int j = 0; j < jobs; ++j) pool.jobs.push_back(synthetic_job(dice, 100000 + j, pool.now, 64, false));
  for (Job& job : pool.jobs) job.since = std::max(job.since, pool.now - 0.5 * pool.patience);
  Pool half = pool;
  half.jobs.resize(pool.jobs.size() / 2);
  const Plan plan = policy(half);
  for (size_t i = 0; i < half.jobs.size(); ++i) {
    pool.jobs[i].slots = plan.decisions[i].slots;
    pool.jobs[i].shape = plan.decisions[i].shape;
  }
  for (Slot& slot : pool.slots)
    if (dice.uniform() < 0.1) {
      for (Job& job : pool.jobs) std::erase(job.slots, slot.id);
      slot.id += slots;
    }
  return pool;
}

}  // namespace elinvar::pool
