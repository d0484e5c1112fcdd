// Jobs whose workers keep some rows of a sparse table each, or some rows' state (ZeRO): the ledger of one worker in
// every arrangement, through deaths at each point of a step, changes of arrangement, and resumption.
#include "tests/jobs/divided_runs.h"
#include "tests/jobs/table_job.h"

namespace elinvar {
namespace {

using test::Ended;
using Words = std::vector<std::string>;

const Words kRowwise = {"--set", "optimizer.sparse_kind=\"rowwise_adagrad\"", "--set", "optimizer.sparse_lr=0.05",
                        "--set", "data.symbols=[300000, 7, 20000]",           "--set", "model.channels=4"};
const Words kAverage = {"--set", "optimizer.ema_decay=0.9"};
// Rows of 1024 channels, so that the few rows in use are in several buckets.
const Words kGrowing = {"--set", "model.rows=900", "--set", "model.channels=1024"};

class ShardedTables : public test::DividedRuns {
 protected:
  // The table has several buckets: cuts are at 2^18 elements, or 2^18 rows with a number of state for each row.
  void SetUp() override { folder_.write("job.toml", test::sparse_table_job("30000, 7, 20000")); }
  static Words zero(int stage, int copies, const std::string& more = {}) {
    return {"--arrangement", fmt::format("zero={}{}", stage, more), "--copies", std::to_string(copies)};
  }
  static Words joined(Words words, const std::vector<Words>& more) {
    for (const Words& each : more) words.insert(words.end(), each.begin(), each.end());
    return words;
  }
  static std::string name_of(const Words& settings) { return settings == kAverage ? "average" : "grows"; }
  int events(const std::string& name, const std::string& event) const {
    int n = 0;
    for (const std::string& line : test::lines_of(read_file(folder_ / name / "events.jsonl")))
      n += nlohmann::json::parse(line).value("event", "") == event;
    return n;
  }
};

TEST_F(ShardedTables, HaveTheLedgerOfOneWorkerInEachStage) {
  for (const auto& [name, settings] :
       {std::pair<std::string, Words>{"adam", {}}, {"rowwise", kRowwise}, {"grows", kGrowing}, {"average", kAverage}}) {
    const std::string alone = trained_result(name, settings);
    for (const int stage : {1, 2, 3})
      for (const int copies : {1, 2}) {
        const std::string run = fmt::format("{}-{}-{}", name, stage, copies);
        EXPECT_EQ(trained_result(run, joined(settings, {zero(stage, copies), {"--workers", "3"}})), alone) << run;
        if (HasFailure()) return;
      }
    EXPECT_EQ(trained_result(name + "-one", joined(settings, {zero(3, 1), {"--workers", "1"}})), alone);
  }
}

TEST_F(ShardedTables, HaveTheLedgerOfOneWorkerWithStagesAndOnAGpu) {
  const std::string alone = trained_result("alone", {});
  for (const int stage : {1, 3}) {
    EXPECT_EQ(trained_result(fmt::format("stages{}", stage), joined(zero(stage, 1, ",pp=2"), {{"--workers", "2"}})),
              alone);
    EXPECT_EQ(trained_result(fmt::format("emulated{}", stage),
                             joined(zero(stage, 1), {{"--workers", "2", "--device", "emulated"}})),
              alone);
    EXPECT_EQ(trained_result(fmt::format("offloaded{}", stage),
                             joined(zero(stage, 1), {{"--workers", "2", "--offload", "file"}})),
              alone);
  }
}

// With ELINVAR_FULL all of them, otherwise every second one.
TEST_F(ShardedTables, DeathsAtEachPointOfAStepAreOvercome) {
  int number = 0;
  for (const auto& [name, settings] : {std::pair<std::string, Words>{"whole", {}}, {"grows", kGrowing}}) {
    const std::string alone = trained_result(name, settings);
    for (const int stage : {1, 2, 3})
      for (const char* at : {"forward", "contribute", "trailer", "update", "value"}) {
        if (!test::every_division() && ++number % 2 == 0) continue;
        if (stage == 3 && std::string(at) == "value") at = "fetch";
        const std::string run = fmt::format("{}-{}-{}", name, stage, at);
        const std::string chaos =
            fmt::format("kill:worker=2,step=4,at={};join:step=6;kill:worker=1,step=9,at={}", at, at);
        EXPECT_EQ(trained_result(run, joined(settings, {zero(stage, 2), {"--workers", "3", "--chaos", chaos}})), alone)
            << run;
        if (HasFailure()) return;
      }
  }
}

// Without copies the state is lost with its worker, and the run goes on from a checkpoint.
TEST_F(ShardedTables, WithoutACopyTheRunRestoresACheckpoint) {
  for (const Words& settings : {Words(), kGrowing}) {
    const std::string name = settings.empty() ? "whole" : "grows", alone = trained_result(name, settings);
    for (const int stage : {1, 3}) {
      const std::string run = fmt::format("{}-{}", name, stage);
      const Words chaos = {"--workers", "3", "--chaos", "kill:worker=2,step=9,at=update;join:step=10"};
      EXPECT_EQ(trained_result(run, joined(settings, {zero(stage, 1), chaos})), alone) << run;
      EXPECT_EQ(events(run, "state_lost"), 1) << run;
    }
  }
}

// Values of all rows are sent when whole tables come out of slices, and of touched rows later.
TEST_F(ShardedTables, FollowChangesOfTheArrangement) {
  for (const Words& settings : {kAverage, kGrowing}) {
    const std::string name = name_of(settings);
    const Words longer = joined(settings, {{"--set", "run.steps=60"}});
    const std::string alone = trained_result(name, longer);
    const Words chaos = {"--workers", "3", "--chaos",
                         "arrange:step=4,zero=1;arrange:step=12,zero=3,copies=1;arrange:step=20,zero=2;join:step=24;"
                         "arrange:step=30,zero=3;arrange:step=38,zero=0;arrange:step=46,zero=3"};
    EXPECT_EQ(trained_result(name + "-changes", joined(longer, {chaos})), alone);
    int changes = 0;
    for (const std::string& line : test::lines_of(read_file(folder_ / (name + "-changes") / "events.jsonl")))
      changes += nlohmann::json::parse(line).value("reason", "").starts_with("arrangement ");
    EXPECT_GE(changes, 4);
  }
}

// Any arrangement goes on with the checkpoint of any other one.
TEST_F(ShardedTables, AnotherArrangementResumes) {
  for (const Words& settings : {kAverage, kGrowing}) {
    const std::string name = name_of(settings), alone = trained_result(name, settings);
    int number = 0;
    for (const auto& [first, second] : {std::pair{3, 0}, {0, 3}, {1, 3}, {3, 2}}) {
      const std::string run = fmt::format("{}{}", name, number++);
      const Ended stopped = train(joined({"run", folder_ / "job.toml", "--run-dir", folder_ / run, "--until", "8"},
                                         {settings, zero(first, 1), {"--workers", "2"}}));
      EXPECT_EQ(stopped.code, 0) << stopped.err;
      const Ended resumed = train(joined({"resume", folder_ / run, "--workers", "3"}, {zero(second, 1)}));
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_EQ(result(run), alone) << first << " then " << second;
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace elinvar
