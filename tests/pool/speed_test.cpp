// Learned speeds: least squares, allocations of kinds, predictions and their certainty, and the advisor's trials.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tensor/base/failure.h"
#include "tools/pool/policies/advisor.h"
#include "tools/pool/profiling/heterogeneous_split.h"
#include "tools/pool/profiling/least_squares.h"
#include "tools/pool/profiling/speed.h"
#include "tools/pool/profiling/trials.h"
#include "tools/pool/sim/dice.h"

namespace elinvar::pool {
namespace {

// Checks the conditions of an optimum: no unknown is negative, and no small change improves the result.
TEST(LeastSquares, MeetsTheConditionsOfAnOptimum) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Dice dice(seed, "nnls");
    const int n = 1 + dice.below(5), rows = n + dice.below(6);
    Eigen::MatrixXd a(rows, n);
    Eigen::VectorXd y(rows);
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < n; ++i) a(r, i) = dice.normal();
      y(r) = dice.normal();
    }
    const Eigen::VectorXd x = nonnegative_least_squares(a, y);
    const double error = (a * x - y).squaredNorm();
    for (int i = 0; i < n; ++i) {
      ASSERT_GE(x(i), 0);
      for (const double step : {1e-4, -1e-4}) {
        Eigen::VectorXd moved = x;
        moved(i) = std::max(0.0, moved(i) + step);
        EXPECT_GE((a * moved - y).squaredNorm(), error - 1e-12) << "seed " << seed << ", unknown " << i;
      }
    }
  }
}

TEST(LeastSquares, FindsWhatWasPutIn) {
  const Eigen::MatrixXd a{{1, 1, 0}, {1, 0.5, 1}, {1, 0.25, 2}, {1, 0.125, 3}};
  const Eigen::VectorXd y = a * Eigen::Vector3d{0.5, 2, 0.1};
  const Eigen::VectorXd found = nonnegative_least_squares(a, y);
  // 1e-9: rounding, in a well-conditioned system.
  EXPECT_NEAR(found[0], 0.5, 1e-9);
  EXPECT_NEAR(found[1], 2, 1e-9);
  EXPECT_NEAR(found[2], 0.1, 1e-9);
}

TEST(LeastSquares, RefusesColumnsThatDependOnEachOther) {
  const Eigen::MatrixXd a{{1, 2}, {2, 4}, {3, 6}};
  EXPECT_THROW(inverse_of_gram(a), UsageError);
}

TEST(LeastSquares, TheInverseOfTheGramMatrixIsOne) {
  const Eigen::MatrixXd a{{1, 1, 0}, {1, 0.5, 1}, {1, 0.25, 2}, {1, 0.125, 3}};
  const Eigen::MatrixXd one = inverse_of_gram(a) * (a.transpose() * a);
  EXPECT_LT((one - Eigen::MatrixXd::Identity(3, 3)).norm(), 1e-9);
}

// Returns the shortest step, by trying every split of the virtual ranks.
double shortest(int ranks, const std::vector<DeviceGroup>& devices, size_t from = 0) {
  if (from + 1 == devices.size()) return std::ceil(double(ranks) / devices[from].workers) / devices[from].capability;
  double best = 1e300;
  for (int each = 0; each * devices[from].workers < ranks + devices[from].workers; ++each) {
    const int rest = std::max(0, ranks - each * devices[from].workers);
    best = std::min(best, std::max(each / devices[from].capability, shortest(rest, devices, from + 1)));
  }
  return best;
}

TEST(HeterogeneousSplit, IsOptimal) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Dice dice(seed, "mixing");
    std::vector<DeviceGroup> devices(1 + dice.below(3));
    for (DeviceGroup& d : devices) d = {1 + dice.below(4), 0.2 + dice.uniform()};
    const int ranks = 1 + dice.below(24);
    const HeterogeneousSplit found = heterogeneous_split(ranks, devices);
    // 1e-9: rounding; the two add and divide in different orders.
    EXPECT_NEAR(found.seconds, shortest(ranks, devices), 1e-9 * found.seconds) << "seed " << seed;
    int assigned = 0;
    for (size_t i = 0; i < devices.size(); ++i) assigned += found.ranks[i] * devices[i].workers;
    EXPECT_GE(assigned, ranks);
    double capability = 0;
    for (const DeviceGroup& d : devices) capability += d.workers * d.capability;
    EXPECT_NEAR(found.waste, 1 - ranks / (found.seconds * capability), 1e-9) << "what is not waste is used";
  }
}

TEST(HeterogeneousSplit, WastesNothingWhereRanksFit) {
  EXPECT_DOUBLE_EQ(heterogeneous_split(12, {{2, 4}, {4, 1}}).waste, 0);
  EXPECT_DOUBLE_EQ(heterogeneous_split(12, {{2, 4}, {4, 1}}).seconds, 1);
  EXPECT_NEAR(heterogeneous_split(3, {{2, 1}}).waste, 0.25, 1e-12);
  EXPECT_TRUE(std::isinf(heterogeneous_split(3, {}).seconds));
}

constexpr int kTruthRanks = 32;
constexpr double kTruthBatch = 256;

// A job that follows the formula, with noise of 1 %.
struct Truth {
  double a = 0.02, b = 1.0, c = 0.05, d = 0.002;
  Dice dice{7, "speed"};
  double rate(int n) const {
    return kTruthBatch / (a + b * std::ceil(double(kTruthRanks) / n) / kTruthRanks + c * (n - 1) / n + d * (n - 1));
  }
  Measurement measured(int n, double seconds = 20) {
    return {{{"V100", n}}, {}, seconds, rate(n) * (1 + 0.01 * dice.normal()), 0};
  }
};

TEST(FittedSpeed, PredictsWithinFivePerCentBetweenSizesThatWereTried) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Truth truth;
    truth.dice = Dice(seed, "truths");
    truth.a = 0.05 * truth.dice.uniform();
    truth.c = 0.2 * truth.dice.uniform();
    truth.d = 0.005 * truth.dice.uniform();
    const std::vector<Measurement> seen = {truth.measured(16), truth.measured(8), truth.measured(4), truth.measured(2)};
    const FittedSpeed fitted(kTruthRanks, kTruthBatch, seen);
    for (const int n : {3, 5, 6, 12}) {
      const Rate rate = fitted.rate({{"V100", n}}, {});
      EXPECT_NEAR(rate.samples, truth.rate(n), 0.05 * truth.rate(n)) << "seed " << seed << ", " << n << " workers";
      EXPECT_GT(rate.error, 0);
    }
    // Further extrapolation may be less exact, and the prediction says so.
    for (const int n : {1, 24, 32}) {
      const Rate rate = fitted.rate({{"V100", n}}, {});
      EXPECT_NEAR(rate.samples, truth.rate(n), 4 * rate.error * truth.rate(n)) << "seed " << seed << ", " << n;
    }
  }
}

TEST(FittedSpeed, SaysHowLittleItKnows) {
  Truth truth;
  const FittedSpeed nothing(kTruthRanks, kTruthBatch, {});
  EXPECT_EQ(nothing.rate({{"V100", 4}}, {}).error, 1);
  EXPECT_GT(nothing.rate({{"V100", 4}}, {}).samples, nothing.rate({{"V100", 2}}, {}).samples);
  const std::vector<Measurement> one = {truth.measured(16)};
  const FittedSpeed little(kTruthRanks, kTruthBatch, one);
  EXPECT_GT(little.rate({{"V100", 1}}, {}).error, kSure);
  EXPECT_LT(little.rate({{"V100", 16}}, {}).error, kSure) << "measured";
  const std::vector<Measurement> three = {truth.measured(16), truth.measured(4), truth.measured(1)};
  EXPECT_LT(FittedSpeed(kTruthRanks, kTruthBatch, three).rate({{"V100", 2}}, {}).error, kSure);
  EXPECT_GT(little.rate({{"T4", 2}}, {}).error, 0.3) << "of another kind nothing was seen";
}

TEST(FittedSpeed, ASimilarJobIsAWarmStart) {
  Truth truth;
  const std::vector<Measurement> many = {truth.measured(16), truth.measured(8), truth.measured(4), truth.measured(2)};
  const FittedSpeed before(kTruthRanks, kTruthBatch, many), warm(kTruthRanks, kTruthBatch, {}, &before);
  const Rate rate = warm.rate({{"V100", 6}}, {});
  // Measurements have 1 % noise; predictions are used if they are within 5 %, here and below.
  EXPECT_NEAR(rate.samples, truth.rate(6), 0.05 * truth.rate(6));
  EXPECT_LT(rate.error, 0.2);
  // Measurements of the job itself have a higher weight.
  const std::vector<Measurement> own = {{{{"V100", 8}}, {}, 100, 0.5 * truth.rate(8), 0}};
  const FittedSpeed learned(kTruthRanks, kTruthBatch, own, &before);
  EXPECT_LT(learned.rate({{"V100", 4}}, {}).samples, 0.8 * truth.rate(4));
}

TEST(FittedSpeed, WhatRanOutOfMemoryIsNotTriedAgain) {
  Truth truth;
  const std::vector<Measurement> seen = {truth.measured(4), {{{"T4", 2}}, {}, 1, 0, 0}};
  const FittedSpeed fitted(kTruthRanks, kTruthBatch, seen);
  EXPECT_EQ(fitted.rate({{"T4", 2}}, {}).samples, 0);
  EXPECT_EQ(fitted.rate({{"T4", 8}}, {}).samples, 0);
  EXPECT_EQ(fitted.rate({{"T4", 1}, {"V100", 1}}, {}).samples, 0);
  EXPECT_GT(fitted.rate({{"T4", 8}}, {1, true}).samples, 0) << "with recomputation it may fit";
  EXPECT_GT(fitted.rate({{"V100", 8}}, {}).samples, 0);
  const std::vector<Measurement> later = {truth.measured(4), {{{"V100", 4}}, {}, 0, 0, 0}};
  EXPECT_EQ(FittedSpeed(kTruthRanks, kTruthBatch, later).rate({{"V100", 4}}, {}).samples, 0)
      << "although it once went well";
}

TEST(FittedSpeed, AllocationsOfSeveralKinds) {
  std::vector<Measurement> seen;
  const auto rate = [](double b, int n) {
    return kTruthBatch / (0.02 + b * std::ceil(double(kTruthRanks) / n) / kTruthRanks);
  };
  for (const int n : {1, 2, 4}) {
    seen.push_back({{{"V100", n}}, {}, 60, rate(1, n), 0});
    seen.push_back({{{"T4", n}}, {}, 60, rate(3, n), 0});
  }
  const FittedSpeed fitted(kTruthRanks, kTruthBatch, seen);
  // The V100s get 12 of the 32 virtual ranks each and the T4s 4: a step is as long as 12 on a V100.
  const double expected = kTruthBatch / (0.02 + 12.0 / 32);
  EXPECT_NEAR(fitted.rate({{"V100", 2}, {"T4", 2}}, {}).samples, expected, 0.05 * expected);
}

Pool pool_with(const Job& job) {
  Pool pool;
  pool.now = 1000;
  for (int i = 1; i <= 16; ++i) pool.slots.push_back({i, "V100", "host-" + std::to_string(i)});
  pool.jobs = {job};
  return pool;
}

Job learning_job(std::vector<Measurement> measured, int has) {
  Job job;
  job.id = 1;
  job.max_workers = 16;
  job.total = 1e9;
  job.virtual_ranks = kTruthRanks;
  job.measured = std::move(measured);
  job.speed = std::make_shared<FittedSpeed>(kTruthRanks, kTruthBatch, job.measured);
  for (int i = 1; i <= has; ++i) job.slots.push_back(i);
  return job;
}

TEST(Advisor, GoesFromLargeToSmallAndStopsWhenSure) {
  Truth truth;
  std::vector<Measurement> measured;
  std::vector<int> tried;
  for (int has = 16;;) {
    const Job job = learning_job(measured, has);
    const std::optional<Advice> advice = advise(pool_with(job), job, {{"V100", 16}}, {});
    if (!advice) break;
    EXPECT_FALSE(advice->reason.empty());
    if (advice->workers < 16) {
      EXPECT_GT(advice->cost, 0);
    }
    tried.push_back(has = advice->workers);
    measured.push_back(truth.measured(has));
    ASSERT_LT(tried.size(), 9u);
  }
  ASSERT_GE(tried.size(), 2u);
  EXPECT_EQ(tried[0], 16);
  EXPECT_EQ(tried[1], 8);
  EXPECT_TRUE(std::is_sorted(tried.rbegin(), tried.rend()));
  const FittedSpeed fitted(kTruthRanks, kTruthBatch, measured);
  for (int n = 1; n <= 16; ++n) {
    if (kTruthRanks % n != 0) continue;
    EXPECT_NEAR(fitted.rate({{"V100", n}}, {}).samples, truth.rate(n), 0.05 * truth.rate(n)) << n;
  }
}

TEST(Advisor, DoesNotSpendMoreThanTheJobIsWorth) {
  Truth truth;
  Job job = learning_job({truth.measured(16)}, 16);
  EXPECT_TRUE(advise(pool_with(job), job, {{"V100", 16}}, {}));
  job.total = 3000;  // a dozen steps
  EXPECT_FALSE(advise(pool_with(job), job, {{"V100", 16}}, {}));
}

TEST(Advisor, ATrialIsAPlanWithFewerOfTheSameSlots) {
  Truth truth;
  const Job job = learning_job({truth.measured(16)}, 16);
  const Pool pool = pool_with(job);
  const Plan plan = with_advice(pool, {{{1, job.slots, {}, "all"}}, "", 0});
  ASSERT_EQ(plan.decisions[0].slots.size(), 8u);
  EXPECT_TRUE(violations(pool, plan).empty());
  EXPECT_NE(plan.decisions[0].reason.find("tries 8 of 16"), std::string::npos) << plan.decisions[0].reason;
}

}  // namespace
}  // namespace elinvar::pool
