// The coordinator's reaction to a difference that an audit has found.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// A coordinator of two workers at step 0, with the records and messages that it makes.
struct AuditedJob : CoordinatorWorld {
  AuditedJob() : coordinator({.endpoint = "e", .steps = 10, .initial_workers = 2}, *this, 0, {}, 0) {
    for (const PeerId peer : {PeerId{1}, PeerId{2}})
      coordinator.receive({.sender = peer, .payload = messages::Hello{.about = {.endpoint = "e"}}}, 0);
    for (const PeerId peer : {PeerId{1}, PeerId{2}})
      coordinator.receive({.sender = peer, .payload = messages::Ready{.attempt = 0}}, 0);
  }
  bool create(const Generation& generation) override {
    created.push_back(generation);
    return true;
  }
  bool superseded() override { return false; }
  std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override { return steps.back().step; }
  int64_t restart() override { return 0; }
  int64_t newest_checkpoint(int64_t most) override { return most; }
  void event(const std::string& name, const Json& fields) override {
    if (name == "audit") verdicts.push_back(fields);
  }
  void evict(PeerId) override {}
  std::string refuse(const messages::Hello&) override { return ""; }

  // A member reports the claims of all members about bucket 0 of step 0, and both answer the fence that follows.
  void report(Evidence::Stage stage, const SumClaim& first, const SumClaim& second) {
    Evidence evidence{.stage = stage, .step = 0, .vrank = 0, .bucket = 0, .witnesses = {}, .received = {}};
    for (const auto& [worker, claim] : {std::pair{1, first}, std::pair{2, second}})
      evidence.witnesses.push_back({worker, {.states = {}, .leaves = {}, .sums = {claim}}});
    coordinator.receive(
        {.sender = 1, .generation = created.back().number, .payload = messages::Audit{std::move(evidence)}}, 0);
    const int64_t fence = coordinator.job().phase == Coordinator::Phase::fencing ? created.back().number + 1 : 0;
    for (const PeerId peer : {PeerId{1}, PeerId{2}})
      if (fence > 0)
        coordinator.receive(
            {.sender = peer, .payload = messages::Fenced{.promised = fence, .active = true, .loaded = true}}, 0);
  }

  std::vector<Generation> created;
  std::vector<Json> verdicts;
  Coordinator coordinator;
};

const SumClaim kSum{{1, 1}, {2, 2}}, kOther{{3, 3}, {4, 4}};

// Otherwise a state in doubt would be saved as the one from which the run continues.
TEST(CoordinatorAudit, AStopComesAfterTheTrial) {
  AuditedJob job;
  ASSERT_EQ(job.created.size(), 1u);
  job.report(Evidence::Stage::audit, kSum, kOther);
  ASSERT_TRUE(job.created.back().trial);
  job.coordinator.ask_stop("stopped by train ctl", 0);
  job.report(Evidence::Stage::trial, kSum, kOther);  // again
  ASSERT_TRUE(job.created.back().trial);
  EXPECT_FALSE(job.created.back().stop);
  job.report(Evidence::Stage::trial, kSum, kSum);
  EXPECT_FALSE(job.created.back().trial);
  EXPECT_TRUE(job.created.back().stop);
}

TEST(CoordinatorAudit, ADifferenceThatRemainsEndsTheRunAndNamesWhoDiffers) {
  AuditedJob job;
  for (int i = 0; i < 20 && !job.coordinator.job().ending; ++i)
    job.report(i == 0 ? Evidence::Stage::audit : Evidence::Stage::trial, kSum, kOther);
  ASSERT_TRUE(job.coordinator.job().ending);
  EXPECT_EQ(job.verdicts.size(), 11u);
  EXPECT_EQ(job.coordinator.job().ending->what, "failed");
  EXPECT_NE(job.coordinator.job().ending->reason.find("without workers 1 and 2"), std::string::npos)
      << job.coordinator.job().ending->reason;
  EXPECT_EQ(job.verdicts.back().at("verdict"), "undecided");
  EXPECT_EQ(job.verdicts.back().at("workers"), Json({1, 2}));
}

}  // namespace
}  // namespace elinvar
