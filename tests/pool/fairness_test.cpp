// No job waits while a slot is free for it, or behind a job of lower priority.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tools/pool/policies/fixed.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/policies/priority.h"
#include "tools/pool/sim/dice.h"
#include "tools/pool/sim/random_pool.h"

namespace elinvar::pool {
namespace {

bool has_fixed_sizes(const NamedPolicy& policy) {
  return policy.plan == fifo || policy.plan == queue || policy.plan == backfill;
}

// Speed proportional to the number of workers.
class Proportional : public Speed {
 public:
  Rate rate(const Allocation& allocation, const WorkerShape&) const override {
    return {static_cast<double>(workers(allocation))};
  }
};

Job running_job(Id id, int min, int max, double left) {
  Job job;
  job.id = id;
  job.min_workers = min;
  job.max_workers = job.fixed_workers = max;
  job.submitted = job.since = static_cast<double>(id);
  job.total = 1e6;
  job.done = job.total - left;
  job.speed = std::make_shared<Proportional>();
  return job;
}

Pool busy_pool(int slots, std::vector<Job> jobs) {
  Pool pool;
  pool.now = 1000;
  for (int i = 1; i <= slots; ++i) pool.slots.push_back({i, "V100", "host-" + std::to_string(i)});
  pool.jobs = std::move(jobs);
  return pool;
}

// The remaining work is less than the cost of its start.
TEST(PoolFairness, AJobThatIsAlmostDoneIsStarted) {
  for (const NamedPolicy& policy : policies())
    for (const double start : {5.0, 1e4}) {
      Pool pool = busy_pool(3, {running_job(1, 1, 3, 3)});
      pool.jobs[0].costs.start = start;
      const Plan plan = policy.plan(pool);
      EXPECT_FALSE(plan.decisions[0].slots.empty()) << policy.name << ": " << plan.decisions[0].reason;
    }
}

TEST(PoolFairness, AJobThatIsAlmostDoneGoesBeforeOneOfLowerPriority) {
  for (const NamedPolicy& policy : policies()) {
    if (has_fixed_sizes(policy)) continue;  // a running job keeps its slots
    Pool pool = busy_pool(1, {running_job(1, 1, 1, 1e5), running_job(2, 1, 1, 3)});
    pool.jobs[1].priority = 1;
    pool.jobs[0].slots = {1};
    const Plan plan = policy.plan(pool);
    EXPECT_EQ(plan.decisions[1].slots, std::vector<Id>{1}) << policy.name << ": " << plan.decisions[1].reason;
  }
}

// A worker of two slots is three times as fast as one of one slot.
class Wide : public Speed {
 public:
  Rate rate(const Allocation& allocation, const WorkerShape& shape) const override {
    return {workers(allocation) * (shape.width == 2 ? 3.0 : 1.0)};
  }
};

// Two free slots on two hosts.
TEST(PoolFairness, WhoFindsNoHostForAWideWorkerGetsNarrowOnes) {
  for (const NamedPolicy& policy : policies()) {
    Pool pool = busy_pool(3, {running_job(1, 1, 2, 1e5), running_job(2, 1, 1, 1e5)});
    pool.slots[0].host = pool.slots[1].host = "a";
    pool.jobs[1].slots = {1};
    pool.jobs[0].shapes = {{1, false}, {2, false}};
    pool.jobs[0].speed = std::make_shared<Wide>();
    EXPECT_FALSE(policy.plan(pool).decisions[0].slots.empty()) << policy.name;
  }
}

// A job that needs several kinds of slots for its size holds back later jobs until it gets them.
TEST(PoolFairness, WhoIsDueAndFitsNoKindAloneGetsSeveral) {
  for (const NamedPolicy& policy : policies()) {
    Pool pool = busy_pool(4, {running_job(1, 4, 4, 1e5), running_job(2, 1, 1, 1e5)});
    pool.slots[2].kind = pool.slots[3].kind = "T4";
    pool.now = 1 + pool.patience + 10;
    pool.jobs[1].since = pool.now - 1;
    EXPECT_EQ(policy.plan(pool).decisions[0].slots.size(), 4u) << policy.name;
  }
}

// Returns the slots of each kind that a plan leaves to a job: unused ones, and those that jobs of lower priority need
// not have. With fixed sizes, where running jobs keep their slots, only slots newly given to jobs of lower priority
// count.
Allocation left_to(const Pool& pool, const Plan& plan, const Offer& offer, const Job& job, bool fixed) {
  std::map<Id, std::string> slots;
  for (const Slot& slot : pool.slots)
    if (!slot.expiring(pool.now)) slots[slot.id] = slot.kind;
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    const Job& other = pool.jobs[i];
    if (other.priority < job.priority && !offer.must(i) && !(fixed && other.running())) continue;
    for (const Id id : plan.decisions[i].slots) slots.erase(id);
  }
  Allocation left;
  for (const auto& [id, kind] : slots) ++left[kind];
  return left;
}

// Returns whether the job's minimum fits there, in one kind or in several.
bool fits(const Job& job, const Allocation& left, bool several) {
  const auto runs = [&](const Allocation& allocation) {
    return std::any_of(job.shapes.begin(), job.shapes.end(), [&](const WorkerShape& shape) {
      return shape.width == 1 && workers(allocation) == job.min_workers &&
             job.speed->rate(allocation, shape).samples > 0;
    });
  };
  Allocation allocation;
  int lacks = job.min_workers;
  for (const auto& [kind, n] : left) {
    if (!job.allows(kind)) continue;
    if (n >= job.min_workers && runs({{kind, job.min_workers}})) return true;
    if (const int some = std::min(n, lacks); some > 0) allocation[kind] = some, lacks -= some;
  }
  return several && runs(allocation);
}

// Returns whether the job waits for others that are before it in the queue: for all, or for those that want the same
// slots.
bool queues(const Pool& pool, const std::vector<size_t>& before, const Job& job, bool for_all) {
  return std::any_of(before.begin(), before.end(), [&](size_t other) {
    return for_all || std::any_of(pool.slots.begin(), pool.slots.end(), [&](const Slot& slot) {
             return job.allows(slot.kind) && pool.jobs[other].allows(slot.kind);
           });
  });
}

// Returns the pool after a plan was carried out.
Pool after(Pool pool, const Plan& plan) {
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    Job& job = pool.jobs[i];
    if (job.slots.empty() != plan.decisions[i].slots.empty()) job.since = pool.now;
    job.slots = plan.decisions[i].slots;
    job.shape = plan.decisions[i].shape;
  }
  return pool;
}

// With fixed sizes, slots that jobs give up in one plan are used by a later one. ELINVAR_POOLS sets the number of
// pools.
TEST(PoolFairness, NobodyWaitsForNothingNorBehindALowerPriority) {
  const char* const text = std::getenv("ELINVAR_POOLS");
  const int count = text != nullptr ? std::atoi(text) : 200;
  int judged = 0;
  for (int seed = 0; seed < count; ++seed) {
    Dice dice(static_cast<uint64_t>(seed), "fairness");
    Pool random = random_pool(static_cast<uint64_t>(seed), 1 + dice.below(24), 1 + dice.below(10), 1 + dice.below(3));
    for (Job& job : random.jobs) {
      if (dice.uniform() < 0.3) job.done = job.total * (1 - 1e-4);
      if (dice.uniform() < 0.2) job.costs.start = 2 * random.horizon;
    }
    for (const NamedPolicy& policy : policies()) {
      const bool fixed = has_fixed_sizes(policy);
      Pool pool = random;
      for (int i = 0; fixed && i < 4; ++i) pool = after(pool, policy.plan(pool));
      const Pool seen = fixed ? rigid(pool) : pool;
      const Offer offer(seen, fixed ? Offer::Running::kStay : Offer::Running::kMayShrink);
      const Plan plan = policy.plan(pool);
      const std::vector<size_t> due = due_jobs(seen);
      // Slots are reserved for a job that is due.
      if (std::any_of(due.begin(), due.end(), [&](size_t i) { return plan.decisions[i].slots.empty(); })) continue;
      std::vector<size_t> before;  // waiting jobs
      for (const size_t i : by_priority(offer)) {
        const Job& job = seen.jobs[i];
        if (!plan.decisions[i].slots.empty()) continue;
        const bool behind = fixed && queues(seen, before, job, policy.plan == queue);
        before.push_back(i);
        if (behind) continue;
        ++judged;
        const Allocation left = left_to(seen, plan, offer, job, fixed);
        EXPECT_FALSE(fits(job, left, /*several=*/!fixed))
            << policy.name << ", seed " << seed << ": job " << job.id << " waits, and there is " << text_of(left)
            << ": " << plan.decisions[i].reason;
      }
    }
  }
  EXPECT_GT(judged, count);
}

}  // namespace
}  // namespace elinvar::pool
