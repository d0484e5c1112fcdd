#include "tools/training/fault_injector.h"

#include <gtest/gtest.h>

#include <climits>

namespace elinvar {
namespace {

// Workers that run nowhere: faults are drawn and told, and no signal is sent.
TEST(FaultInjector, AStepThatComesAgainBringsNoOtherRandomFaults) {
  int faults = 0;
  const FaultInjector::World world{.workers =
                                       [] {
                                         std::vector<FaultInjector::Worker> workers;
                                         for (int i = 0; i < 6; ++i)
                                           workers.push_back({.pid = INT_MAX - i, .id = i + 1, .member = true});
                                         return workers;
                                       },
                                   .start_worker = [] {},
                                   .event = [&](const std::string&, const nlohmann::json&) { ++faults; }};
  FaultInjector injector({.faults = {}, .random = RandomFaults{.seed = 1, .rate = 1}}, world, /*recorded=*/3);
  const auto faults_at = [&](int64_t step) {
    const int before = faults;
    injector.note({Moment::What::step, step});
    injector.act();
    return faults - before;
  };
  EXPECT_EQ(faults_at(3), 0) << "an earlier part of the run had them";
  EXPECT_GT(faults_at(4), 0);
  EXPECT_EQ(faults_at(4), 0);
  EXPECT_EQ(faults_at(2), 0);
  EXPECT_GT(faults_at(5), 0);
}

}  // namespace
}  // namespace elinvar
