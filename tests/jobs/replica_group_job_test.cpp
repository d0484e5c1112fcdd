// Jobs of real processes whose workers are GPUs of model replicas, and exchange gradients, the values of virtual shards
// and those between stages by NCCL: emulated ones, and a card if the machine has one. The run ends as
// that of one undisturbed worker, also if the group fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/jobs/divided_runs.h"
#include "tests/jobs/division_faults.h"

namespace elinvar {
namespace {

using test::Division;
using test::DivisionFaults;
using Words = std::vector<std::string>;

class ReplicaGroupJob : public DivisionFaults {
 protected:
  // Whether the data plane of some generation is described so.
  bool says(const std::string& name, const std::string& part) const {
    return std::ranges::any_of(planes(name), [&](const std::string& p) { return p.find(part) != std::string::npos; });
  }
};

TEST_F(ReplicaGroupJob, OnACard) {
  if (!run_on_a_card("run", {"--arrangement", "tp=2", "--workers", "1"}, kSteps)) GTEST_SKIP() << "no GPU, or no NCCL";
  EXPECT_TRUE(says("run", "nccl: gradients, values of shards"));
  EXPECT_TRUE(run_on_a_card("stages", {"--arrangement", "pp=2", "--workers", "1"}, kSteps));
  EXPECT_TRUE(says("stages", "nccl: gradients, values between stages"));
}

#ifdef ELINVAR_EMULATION

Words on_gpus(Words words) {
  words.insert(words.end(), {"--device", "emulated"});
  return words;
}

class GptGroupJob : public test::DividedRuns {
 protected:
  void SetUp() override { folder_.write("job.toml", test::kDividedNetworks[0].text()); }
};

TEST_F(GptGroupJob, GpusOfReplicasGiveTheLedgerOfOneWorker) {
  const Words settings = {"--steps", "24", "--set", "model.virtual_shards=2"};
  const std::string alone = trained_result("alone", settings);
  for (const auto& [division, carried] :
       {std::pair{Division{}, "gradients, values of shards"},
        {Division{.dp = 2, .tp = 1, .pp = 2}, "gradients, values between stages"},
        {Division{.dp = 2, .zero = 1}, "gradients, parameters, values of shards"},
        {Division{.tp = 2, .pp = 2}, "gradients, values of shards, values between stages"},
        {Division{.tp = 1, .pp = 3, .zero = 2}, "parameters, values between stages"},
        {Division{.zero = 2, .copies = 1}, "parameters, values of shards"}}) {
    const std::string name = division.name();
    EXPECT_EQ(trained_result(name, on_gpus(division.complete(settings))), alone) << name;
    const std::string events = read_file(folder_ / name / "events.jsonl");
    EXPECT_NE(events.find(fmt::format(R"("carries":"{}")", carried)), std::string::npos) << events;
  }
  // A stage of two members, and one of one, which has both segments that read the tied embedding. No transfer waits
  // until the group is given up.
  Words uneven = on_gpus({"--arrangement", "tp=2,pp=2", "--workers", "3", "--min-workers", "3"});
  uneven.insert(uneven.end(), settings.begin(), settings.end());
  EXPECT_EQ(trained_result("uneven", uneven), alone);
  EXPECT_EQ(read_file(folder_ / "uneven" / "events.jsonl").find("has not ended within"), std::string::npos);
}

TEST_F(ReplicaGroupJob, WhoDiesWithinASumIsReplacedByTheOther) {
  for (const int victim : {0, 2}) {
    const std::string name = fmt::format("run{}", victim);
    const std::string chaos = fmt::format("kill:worker={},step=100,at=within;join:step=110", victim);
    expect_undisturbed(name, wait(start(name, on_gpus(options({}, chaos))), name, std::chrono::seconds(60)));
    EXPECT_EQ(count(name, "kill"), 1u);
    EXPECT_TRUE(says(name, "nccl: gradients, values of shards"));
  }
}

// A stage has announced a value, and the next one waits for it.
TEST_F(ReplicaGroupJob, StagesThatDieWithinATransferAreReplaced) {
  const std::string chaos = "kill:worker=1,step=50,at=boundary;join:step=60;kill:worker=2,step=100,at=boundary";
  const Words division = Division{.tp = 1, .pp = 3}.options({"--chaos", chaos});
  expect_undisturbed("run", wait(start("run", on_gpus(division)), "run", std::chrono::seconds(60)));
  EXPECT_EQ(count("run", "kill"), 2u);
  EXPECT_TRUE(says("run", "nccl: gradients, values between stages"));
}

// One worker of two has a fault. Where a sum or a value does not come, the step is repeated through the hosts.
TEST_F(ReplicaGroupJob, TroubleWithNcclEndsInTheHosts) {
  struct Case {
    std::string name, arrangement, fault, timeout, told;
    bool used;
  };
  for (const Case& c :
       {Case{"unformed", "tp=2", "init_fails", "30", "GPUs cannot be connected", false},
        Case{"hanging", "tp=2", "transfer_hangs=200", "1", "a transfer has not ended within", true},
        Case{"hanging stage", "pp=2,zero=2", "transfer_hangs=61", "1", "a transfer has not ended within", true},
        Case{"failing stage", "pp=2,zero=2", "transfer_fails=64", "30", "told to fail", true}}) {
    const Words options = {"--arrangement", c.arrangement, "--workers", "1",
                           "--min-workers", "2",           "--set",     "run.group_timeout=" + c.timeout};
    const pid_t job = start(c.name, on_gpus(options));
    const pid_t other = spawn({"join", endpoint(c.name), "--device", "emulated", "--threads", "1"}, "other",
                              {"env", "ELINVAR_EMULATED_NCCL=" + c.fault});
    expect_undisturbed(c.name, wait(job, c.name, std::chrono::seconds(60)));
    EXPECT_EQ(wait(other, "other").code, 0);
    EXPECT_TRUE(says(c.name, c.told)) << c.name;
    EXPECT_EQ(says(c.name, "nccl"), c.used) << c.name;
  }
}

#endif

}  // namespace
}  // namespace elinvar
