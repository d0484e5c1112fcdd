// The rules of a plan, each broken on purpose; and the costs of a change of workers.
#include <gtest/gtest.h>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {
namespace {

// Returns the sentences, one per line; "" if there are none.
std::string said(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

::testing::AssertionResult says(const std::vector<std::string>& sentences, const std::string& part) {
  if (said(sentences).find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << said(sentences);
}

// n workers are n times as fast as one, and half as fast on the kind "slow".
class Even : public Speed {
 public:
  Rate rate(const Allocation& allocation, const WorkerShape& shape) const override {
    double sum = 0;
    for (const auto& [kind, n] : allocation) sum += n * (kind == "slow" ? 0.5 : 1.0) * shape.width;
    return {100 * sum, 0};
  }
};

// Eight slots on four hosts, the last two slow; job 1 has slots 1 and 2, job 2 waits.
Pool small_pool() {
  Pool pool;
  pool.now = 5000;
  for (int i = 1; i <= 8; ++i)
    pool.slots.push_back({i, i > 6 ? "slow" : "fast", "host-" + std::to_string((i - 1) / 2)});
  for (int i = 1; i <= 2; ++i) {
    Job job;
    job.id = i;
    job.min_workers = 2;
    job.max_workers = 4;
    job.kinds = {"fast"};
    job.shapes = {{1, false}, {2, false}};
    job.speed = std::make_shared<Even>();
    job.total = 1e6;
    job.since = 4900;
    pool.jobs.push_back(job);
  }
  pool.jobs[0].slots = {1, 2};
  return pool;
}

Plan plan_of(std::vector<Id> first, std::vector<Id> second, WorkerShape shape = {}) {
  return {{{1, std::move(first), shape, "because"}, {2, std::move(second), shape, "because"}}, "", 0};
}

TEST(PoolRules, APlanThatKeepsThem) {
  const Pool pool = small_pool();
  EXPECT_EQ(said(violations(pool)), "");
  EXPECT_EQ(said(violations(pool, plan_of({1, 2, 3}, {4, 5}))), "");
  EXPECT_EQ(said(violations(pool, plan_of({1, 2}, {}))), "");
  EXPECT_EQ(said(violations(pool, plan_of({1, 2, 3, 4}, {}, {2, false}))), "");
}

TEST(PoolRules, EachOneIsChecked) {
  Pool pool = small_pool();
  EXPECT_TRUE(says(violations(pool, {}), "0 decisions for 2 jobs"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2}, {2, 3})), "slot 2 is given to job 1 and to job 2"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2}, {6, 7})), "kind slow"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2}, {3, 99})), "99"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2}, {3})), "1 workers, not 2 to 4"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2, 3, 4, 5}, {})), "5 workers"));
  EXPECT_TRUE(says(violations(pool, plan_of({}, {1, 2})), "less than a turn"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 3, 2, 4}, {}, {2, false})), "two hosts"));
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2}, {}, {3, false})), "shape"));
  Pool gpus = pool;
  for (Slot& slot : gpus.slots) slot.combinable = false;
  EXPECT_TRUE(says(violations(gpus, plan_of({1, 2, 3, 4}, {}, {2, false})), "slot 1 is in a worker with other slots"));
  Plan silent = plan_of({1, 2}, {});
  silent.decisions[1].reason.clear();
  EXPECT_TRUE(says(violations(pool, silent), "no reason"));
  pool.slots[2].until = pool.now + 10;
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2, 3}, {})), "about to go"));
}

TEST(PoolRules, ATurnEndsAndASlotThatIsGoneIsNoDuty) {
  Pool pool = small_pool();
  pool.jobs[0].since = pool.now - pool.turn;
  EXPECT_EQ(said(violations(pool, plan_of({}, {1, 2}))), "");
  pool = small_pool();
  pool.slots[0].until = pool.now + 1;
  EXPECT_EQ(said(violations(pool, plan_of({}, {3, 4}))), "");
}

TEST(PoolRules, NobodyOvertakesTheJobThatIsDue) {
  Pool pool = small_pool();
  pool.jobs[1].since = pool.now - pool.patience - 1;
  EXPECT_EQ(due_jobs(pool), std::vector<size_t>{1});
  EXPECT_TRUE(says(violations(pool, plan_of({1, 2, 3}, {})), "job 2 is due and waits"));
  EXPECT_EQ(said(violations(pool, plan_of({1, 2}, {}))), "") << "nobody gets more";
  EXPECT_EQ(said(violations(pool, plan_of({1, 2, 3}, {4, 5}))), "");
  pool.jobs[1].min_workers = 7;  // more than there are of its kind
  EXPECT_TRUE(due_jobs(pool).empty());
}

TEST(PoolRules, APoolThatCannotBe) {
  Pool pool = small_pool();
  pool.jobs[1].slots = {2};
  pool.jobs[1].max_workers = 1;
  pool.slots.push_back(pool.slots[0]);
  EXPECT_EQ(violations(pool).size(), 3u);
}

TEST(PoolChange, CostsWhatItsPartsCost) {
  const Pool pool = small_pool();
  Job job = pool.jobs[0];
  job.costs = {.start = 7,
               .join = 3,
               .join_stall = 0.5,
               .leave = 1,
               .leave_stall = 0.25,
               .death_stall = 1,
               .stop = 2,
               .checkpoint_every = 60};
  Change change = change_of(pool, job, {1, 2}, {});
  EXPECT_EQ(change.stall + change.ramp + change.samples, 0) << "nothing changes";
  change = change_of(pool, job, {1, 2, 3}, {});
  EXPECT_EQ(change.stall, 0.5);
  EXPECT_EQ(change.ramp, 3);
  EXPECT_EQ(change.meanwhile, (Allocation{{"fast", 2}}));
  EXPECT_DOUBLE_EQ(change.samples, 0.5 * 300 + 3 * 100);
  change = change_of(pool, job, {2}, {});
  EXPECT_EQ(change.stall, 0.25);
  EXPECT_DOUBLE_EQ(change.samples, 25);
  change = change_of(pool, job, {2, 3}, {});
  EXPECT_EQ(change.stall, 0.75) << "one leaves, one joins";
  EXPECT_EQ(change.meanwhile, (Allocation{{"fast", 1}}));
  change = change_of(pool, job, {}, {});
  EXPECT_EQ(change.stall, 2);
  EXPECT_DOUBLE_EQ(change.samples, 400);
  change = change_of(pool, job, {3, 4}, {});
  EXPECT_TRUE(change.anew);
  EXPECT_EQ(change.stall, 9) << "no worker stays";
  change = change_of(pool, job, {1, 2}, {2, false});
  EXPECT_TRUE(change.anew) << "another shape";
  job.slots.clear();
  change = change_of(pool, job, {3, 4}, {});
  EXPECT_EQ(change.stall, 7);
}

}  // namespace
}  // namespace elinvar::pool
