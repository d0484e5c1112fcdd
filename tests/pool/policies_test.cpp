// Policies: all keep the rules in any pool, and each does what its name says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "tests/support/environment.h"
#include "tensor/base/check.h"
#include "tools/pool/policies/choice.h"
#include "tools/pool/policies/growth.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/profiling/heterogeneous_split.h"
#include "tools/pool/sim/dice.h"
#include "tools/pool/sim/random_pool.h"

namespace elinvar::pool {
namespace {

// ELINVAR_POOLS sets the number of pools.
TEST(Policies, KeepTheRulesInRandomPools) {
  const int count = elinvar::test::from_environment("ELINVAR_POOLS", 80);
  int running = 0, due = 0;
  for (int seed = 0; seed < count; ++seed) {
    Dice dice(static_cast<uint64_t>(seed), "sizes");
    Pool pool = random_pool(static_cast<uint64_t>(seed), 1 + dice.below(40), dice.below(12), 1 + dice.below(3));
    // In every other pool one kind is of GPUs.
    for (Slot& slot : pool.slots) slot.combinable = seed % 2 == 0 || slot.kind != "kind-0";
    ASSERT_TRUE(violations(pool).empty()) << "seed " << seed;
    due += !due_jobs(pool).empty();
    for (const NamedPolicy& policy : policies()) {
      const Plan plan = policy.plan(pool);
      for (const std::string& wrong : violations(pool, plan))
        ADD_FAILURE() << policy.name << ", seed " << seed << ": " << wrong;
      EXPECT_GE(plan.gap, 0) << policy.name;
      for (const Decision& decision : plan.decisions) running += !decision.slots.empty();
    }
  }
  EXPECT_GT(running, count) << "the pools were hardly used";
  EXPECT_GT(due, count / 10) << "hardly anybody was due";
}

TEST(Policies, AreFunctions) {
  for (const NamedPolicy& policy : policies()) {
    if (policy.plan == program) continue;  // unless its solver runs into its time limit
    const Pool pool = random_pool(3, 24, 8, 2);
    const Plan one = policy.plan(pool), other = policy.plan(pool);
    for (size_t i = 0; i < one.decisions.size(); ++i) {
      EXPECT_EQ(one.decisions[i].slots, other.decisions[i].slots) << policy.name;
      EXPECT_EQ(one.decisions[i].reason, other.decisions[i].reason) << policy.name;
    }
  }
}

TEST(Policies, AnUnknownNameIsToldTheOthers) {
  EXPECT_STREQ(policy_of("equal").name, "equal");
  try {
    policy_of("best");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("elastic-fifo"), std::string::npos);
  }
}

// A speed given for each kind as a function of the workers; the number of virtual ranks has no effect.
class SpeedFunction : public Speed {
 public:
  explicit SpeedFunction(std::function<double(const std::string&, int)> alone) : alone_(std::move(alone)) {}
  Rate rate(const Allocation& allocation, const WorkerShape&) const override {
    Rate rate;
    for (const auto& [kind, n] : allocation) rate.samples += alone_(kind, n);
    return rate;
  }

 private:
  std::function<double(const std::string&, int)> alone_;
};

const auto kEven = std::make_shared<SpeedFunction>([](const std::string&, int n) { return 1.0 * n; });
// Only four workers are useful.
const auto kFlat = std::make_shared<SpeedFunction>([](const std::string&, int n) { return std::min(n, 4) + 1e-6 * n; });

Job job_of(Id id, int min, int max, int fixed, std::shared_ptr<const Speed> speed = kEven) {
  Job job;
  job.id = id;
  job.min_workers = min;
  job.max_workers = max;
  job.fixed_workers = fixed;
  job.submitted = job.since = static_cast<double>(id);
  job.total = 1e6;
  job.speed = std::move(speed);
  job.costs.start = 1;
  return job;
}

Pool pool_of(int slots, std::vector<Job> jobs, const std::string& kind = "V100") {
  Pool pool;
  pool.now = 100;
  pool.turn = 0;
  for (int i = 1; i <= slots; ++i) pool.slots.push_back({i, kind, "host-" + std::to_string(i)});
  pool.jobs = std::move(jobs);
  return pool;
}

std::vector<int> sizes(const Plan& plan) {
  std::vector<int> all;
  for (const Decision& decision : plan.decisions) all.push_back(static_cast<int>(decision.slots.size()));
  return all;
}

using Sizes = std::vector<int>;

TEST(Fifo, HeadOfTheLineBlocks) {
  const Pool pool = pool_of(8, {job_of(1, 1, 8, 4), job_of(2, 1, 8, 6), job_of(3, 1, 8, 2)});
  EXPECT_EQ(sizes(fifo(pool)), (Sizes{4, 0, 0}));
}

TEST(Fifo, OneQueueHoldsUpWhoWantsSomethingElse) {
  Pool pool = pool_of(4, {job_of(1, 1, 8, 4), job_of(2, 1, 8, 4), job_of(3, 1, 8, 2)});
  for (int i = 5; i <= 8; ++i) pool.slots.push_back({i, "other", "host-" + std::to_string(i)});
  pool.jobs[0].kinds = pool.jobs[1].kinds = {pool.slots[0].kind};
  pool.jobs[2].kinds = {"other"};
  EXPECT_EQ(sizes(fifo(pool)), (Sizes{4, 0, 2}));
  EXPECT_EQ(sizes(queue(pool)), (Sizes{4, 0, 0}));
}

TEST(Fifo, PriorityGoesFirstAndRunningJobsStay) {
  Pool pool = pool_of(8, {job_of(1, 1, 8, 4), job_of(2, 1, 8, 4), job_of(3, 1, 8, 4)});
  pool.jobs[2].priority = 1;
  pool.jobs[1].slots = {1, 2, 3, 4};
  EXPECT_EQ(sizes(fifo(pool)), (Sizes{0, 4, 4}));
}

TEST(Fifo, ALostWorkerIsReplaced) {
  Pool pool = pool_of(8, {job_of(1, 1, 8, 4)});
  pool.jobs[0].slots = {1, 2, 3};
  EXPECT_EQ(sizes(fifo(pool)), (Sizes{4}));
}

TEST(Backfill, GoesAheadOnlyWhereThatDelaysNobody) {
  Pool pool =
      pool_of(8, {job_of(1, 1, 8, 4), job_of(2, 1, 8, 6), job_of(3, 1, 8, 2), job_of(4, 1, 8, 2), job_of(5, 1, 8, 2)});
  pool.jobs[0].slots = {1, 2, 3, 4};
  pool.jobs[0].total = 4000;  // ends after 1000 s; then there are 8 for job 2, and two more
  pool.jobs[2].total = 1e6;   // takes longer than that: gets the two
  pool.jobs[3].total = 1e6;   // would be in the way
  pool.jobs[4].total = 1000;  // ends after 500 s
  EXPECT_EQ(sizes(backfill(pool)), (Sizes{4, 0, 2, 0, 2}));
}

TEST(Equal, SharesWhateverTheSpeeds) {
  EXPECT_EQ(sizes(equal(pool_of(9, {job_of(1, 1, 8, 1), job_of(2, 1, 8, 1, kFlat), job_of(3, 1, 8, 1)}))),
            (Sizes{3, 3, 3}));
  EXPECT_EQ(sizes(equal(pool_of(9, {job_of(1, 1, 2, 1), job_of(2, 1, 8, 1), job_of(3, 6, 8, 6)}))), (Sizes{2, 1, 6}));
}

TEST(ElasticFifo, LetsAllInAndThenServesTheFirst) {
  EXPECT_EQ(sizes(elastic_fifo(pool_of(12, {job_of(1, 2, 8, 4), job_of(2, 2, 8, 4), job_of(3, 2, 8, 4)}))),
            (Sizes{8, 2, 2}));
  EXPECT_EQ(sizes(elastic_fifo(pool_of(12, {job_of(1, 2, 8, 4, kFlat), job_of(2, 2, 8, 4), job_of(3, 2, 8, 4)}))),
            (Sizes{4, 6, 2}))
      << "beyond four the first makes nothing of them";
}

TEST(Marginal, GivesSlotsToWhoMakesMostOfThem) {
  const auto root = std::make_shared<SpeedFunction>([](const std::string&, int n) { return std::sqrt(n); });
  EXPECT_EQ(sizes(marginal(pool_of(10, {job_of(1, 1, 8, 1, root), job_of(2, 1, 8, 1)}))), (Sizes{2, 8}));
}

TEST(Marginal, LooksBeyondAStep) {
  // 8 virtual ranks: 5 to 7 workers are no faster than 4, and 8 are twice as fast.
  const auto stairs =
      std::make_shared<SpeedFunction>([](const std::string&, int n) { return 8.0 / std::ceil(8.0 / n); });
  EXPECT_EQ(sizes(marginal(pool_of(8, {job_of(1, 1, 8, 1, stairs)}))), (Sizes{8}));
  EXPECT_EQ(sizes(marginal(pool_of(7, {job_of(1, 1, 8, 1, stairs)}))), (Sizes{4})) << "three are of no use";
}

TEST(Marginal, GoesBackWhenAPredictionFails) {
  Pool pool = pool_of(8, {job_of(1, 1, 8, 1)});
  pool.jobs[0].slots = {1, 2, 3, 4, 5, 6, 7, 8};
  pool.jobs[0].measured = {{{{"V100", 4}}, {}, 60, 4, 4}, {{{"V100", 8}}, {}, 60, 5, 8}};
  const Plan plan = marginal(pool);
  EXPECT_EQ(sizes(plan), (Sizes{4}));
  EXPECT_NE(plan.decisions[0].reason.find("goes back"), std::string::npos) << plan.decisions[0].reason;
  pool.jobs[0].measured.back().rate = 7;
  EXPECT_EQ(sizes(marginal(pool)), (Sizes{8})) << "near enough";
}

TEST(Marginal, ChangesNothingThatDoesNotPayWithinTheHorizon) {
  Pool pool = pool_of(8, {job_of(1, 1, 8, 1)});
  pool.jobs[0].slots = {1, 2, 3, 4};
  pool.jobs[0].costs.join_stall = 1000;
  EXPECT_EQ(sizes(marginal(pool)), (Sizes{4}));
  pool.jobs[0].costs.join_stall = 1;
  EXPECT_EQ(sizes(marginal(pool)), (Sizes{8}));
}

// Returns the best selection by trying all.
double best_utility(const std::vector<std::vector<Choice>>& groups, std::vector<double> left, size_t from = 0) {
  if (from == groups.size()) return 0;
  double best = -1e300;
  for (const Choice& choice : groups[from]) {
    std::vector<double> then = left;
    bool fits = true;
    for (const auto& [k, amount] : choice.uses) fits = fits && (then[k] -= amount) >= 0;
    if (fits) best = std::max(best, choice.utility + best_utility(groups, then, from + 1));
  }
  return best;
}

TEST(Choice, IsTheBestThereIs) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Dice dice(seed, "choices");
    const std::vector<double> capacities = {3.0 + dice.below(10), 3.0 + dice.below(10)};
    std::vector<std::vector<Choice>> groups(1 + dice.below(6));
    for (std::vector<Choice>& group : groups) {
      group.push_back({0, {}});
      for (int c = dice.below(5); c > 0; --c)
        group.push_back({10 * dice.uniform(), {{dice.below(2), 1.0 + dice.below(6)}}});
    }
    const std::optional<Chosen> chosen =
        choose(groups, capacities, std::vector<size_t>(groups.size(), 0), {.seconds = 10, .nodes = 100000, .gap = 0});
    ASSERT_TRUE(chosen) << "seed " << seed;
    const double best = best_utility(groups, capacities);
    // 1e-6: the solver's tolerance.
    EXPECT_NEAR(chosen->utility, best, 1e-6 * (1 + best)) << "seed " << seed;
    EXPECT_GE(chosen->bound, best - 1e-6 * (1 + best)) << "seed " << seed;
  }
}

TEST(Choice, SaysWhenNothingFits) { EXPECT_FALSE(choose({{{1, {{0, 5.0}}}}}, {4}, {})); }

TEST(Program, BeatsOrEqualsTheGreedyPlanByItsOwnMeasure) {
  double gained = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Pool pool = random_pool(seed, 24, 8, 2);
    const Offer offer(pool);
    const Utility utility(offer);
    const auto value = [&](const Plan& plan) {
      double sum = 0;
      for (size_t i = 0; i < pool.jobs.size(); ++i) {
        const Decision& d = plan.decisions[i];
        sum += utility.option(i, allocation_of(pool, d.slots, d.shape), d.shape).utility;
      }
      return sum;
    };
    const double ours = value(program(pool)), greedy = value(marginal(pool));
    EXPECT_GE(ours, greedy - 2e-3 * std::abs(greedy)) << "seed " << seed;
    gained += ours - greedy;
  }
  EXPECT_GT(gained, 0);
}

TEST(Program, FindsWhatGreedyCannot) {
  // Six slots: the first job is efficient with four, the second with six; neither can use a single slot.
  const auto four = std::make_shared<SpeedFunction>([](const std::string&, int n) { return n >= 4 ? 5.0 : 0.5; });
  const auto six = std::make_shared<SpeedFunction>([](const std::string&, int n) { return n >= 6 ? 20.0 : 0.5; });
  const Pool pool = pool_of(6, {job_of(1, 1, 8, 1, four), job_of(2, 1, 8, 1, six)});
  EXPECT_EQ(sizes(program(pool)), (Sizes{0, 6}));
}

TEST(Program, ReportsItsGap) {
  const Plan plan = program(busy_pool(1, 60, 12, 1, equal));
  EXPECT_GE(plan.gap, 0);
  EXPECT_LT(plan.gap, 0.2) << "even the greedy plan is nearer";
  EXPECT_NE(plan.note.find("%"), std::string::npos) << plan.note;
}

TEST(Cells, RecomputeWhereMemoryIsShort) {
  class Large : public Speed {
   public:
    Rate rate(const Allocation& allocation, const WorkerShape& shape) const override {
      double sum = 0;
      for (const auto& [kind, n] : allocation) {
        if (kind == "T4" && !shape.recompute) return {};
        sum += n * (kind == "T4" ? 0.5 : 1) / (shape.recompute ? 1.3 : 1);
      }
      return {sum, 0};
    }
  };
  Pool pool =
      pool_of(2, {job_of(1, 1, 2, 2, std::make_shared<Large>()), job_of(2, 1, 2, 2, std::make_shared<Large>())});
  pool.slots.push_back({3, "T4", "other"});
  pool.slots.push_back({4, "T4", "other"});
  for (Job& job : pool.jobs) job.shapes = {{1, false}, {1, true}};
  const Plan plan = cells(pool);
  ASSERT_EQ(sizes(plan), (Sizes{2, 2}));
  int recomputing = 0;
  for (const Decision& decision : plan.decisions) {
    const bool on_t4 = decision.slots.front() > 2;
    EXPECT_EQ(decision.shape.recompute, on_t4);
    recomputing += on_t4;
  }
  EXPECT_EQ(recomputing, 1);
}

TEST(Cells, DowngradeOneToUpgradeAnother) {
  Pool pool = pool_of(8, {job_of(1, 2, 8, 2, kFlat), job_of(2, 2, 8, 2)});
  pool.jobs[0].slots = {1, 2, 3, 4, 5, 6, 7, 8};
  pool.jobs[0].costs.leave_stall = 0.1;
  EXPECT_EQ(sizes(cells(pool)), (Sizes{4, 4}));
}

TEST(Offers, AJobThatIsDueIsServedByEveryElasticPolicy) {
  for (const NamedPolicy& policy : policies()) {
    if (policy.plan == fifo || policy.plan == queue || policy.plan == backfill) continue;
    Pool pool = pool_of(8, {job_of(1, 1, 8, 8), job_of(2, 2, 8, 2, kFlat)});
    pool.jobs[0].slots = {1, 2, 3, 4, 5, 6, 7, 8};
    pool.jobs[0].priority = 9;
    pool.jobs[1].since = -1e5;
    EXPECT_GE(sizes(policy.plan(pool))[1], 2) << policy.name;
  }
}

// A million samples at four per second. The remaining time includes the work after the last step.
TEST(Offers, WhoseDeadlineIsAtStakeGoesFirst) {
  for (const NamedPolicy& policy : policies()) {
    Pool pool = pool_of(4, {job_of(1, 4, 4, 4), job_of(2, 4, 4, 4)});
    EXPECT_EQ(sizes(policy.plan(pool)), (Sizes{4, 0})) << policy.name;
    pool.jobs[1].deadline = pool.now + 1.1 * 250000;
    EXPECT_EQ(sizes(policy.plan(pool)), (Sizes{0, 4})) << policy.name;
    pool.jobs[1].deadline = pool.now + 1.3 * 250000;
    EXPECT_EQ(sizes(policy.plan(pool)), (Sizes{4, 0})) << policy.name;
    pool.jobs[1].costs.finish = 0.2 * 250000;
    EXPECT_EQ(sizes(policy.plan(pool)), (Sizes{0, 4})) << policy.name;
  }
}

// A job in a wide shape on CPUs may go to a GPU, but only in a shape of one slot per worker.
TEST(Offers, AWideShapeIsForCombinableSlots) {
  Pool pool = pool_of(4, {job_of(1, 1, 4, 2)});
  for (Slot& slot : pool.slots) slot.host = "a";
  pool.slots.push_back({.id = 9, .kind = "GPU", .host = "b", .combinable = false});
  pool.slots.push_back({.id = 10, .kind = "GPU", .host = "b", .combinable = false});
  const std::string cpu = pool.slots[0].kind;
  const WorkerShape narrow{}, wide{.width = 2};
  pool.jobs[0].shapes = {narrow, wide};
  pool.jobs[0].shape = wide;
  pool.jobs[0].slots = {1, 2};
  const Offer offer(pool);
  EXPECT_TRUE(offer.allowed(0, {{cpu, 2}}, wide));
  EXPECT_TRUE(offer.allowed(0, {{"GPU", 2}, {cpu, 1}}, narrow));
  EXPECT_FALSE(offer.allowed(0, {{"GPU", 1}}, wide));
  EXPECT_FALSE(offer.allowed(0, {{"GPU", 1}, {cpu, 1}}, wide));
  EXPECT_EQ(Utility(offer).option(0, {{"GPU", 2}}).shape, narrow);
}

TEST(Offers, SlotsThatAreGoingAreGivenUp) {
  for (const NamedPolicy& policy : policies()) {
    Pool pool = pool_of(4, {job_of(1, 1, 4, 2)});
    pool.jobs[0].slots = {1, 2};
    pool.slots[0].until = pool.now + 30;
    const Plan plan = policy.plan(pool);
    EXPECT_EQ(std::count(plan.decisions[0].slots.begin(), plan.decisions[0].slots.end(), 1), 0) << policy.name;
    EXPECT_EQ(std::count(plan.decisions[0].slots.begin(), plan.decisions[0].slots.end(), 2), 1)
        << policy.name << ": the other worker stays";
  }
}

}  // namespace
}  // namespace elinvar::pool
