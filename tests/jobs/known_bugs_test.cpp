// Bugs that users of other elastic systems met. Each test shows with real processes that the bug cannot happen here.
// The numbers are those of the issues.
#include <gtest/gtest.h>

#include "elastic/ledger/ledger.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
class KnownBug : public test::TinyJob {
 protected:
  // Kills all workers of a run after its first checkpoint and before its end. Returns the step of the newest
  // checkpoint. On a busy machine the moment may be missed; then it tries again.
  int64_t kill_in_between(const std::string& name, const std::string& workers) const {
    for (int attempt = 0; attempt < 20; ++attempt) {
      fs::remove_all(folder_ / name);
      const int code = wait(start(name, {"--workers", workers, "--chaos", "kill:all,step=60"}), name).code;
      const int64_t newest = newest_checkpoint(name);
      if (code == 3 && newest > 0 && newest < kSteps) return newest;
    }
    ADD_FAILURE() << "it is never killed in between";
    return 0;
  }
};

// After a reset in the middle of an epoch (step 21 is the fifth of the third), the epoch began again with its first
// sample.
TEST_F(KnownBug, Horovod3399SamplesRepeatedAfterAReset) {
  EXPECT_EQ(run_through("run", {"--workers", "2", "--chaos", "kill:all,step=21"}), "");
  expect_each_sample_once_an_epoch(consumed("run"));
}

// The samples of a batch that a dying worker had taken were never trained on.
TEST_F(KnownBug, Horovod3143IndicesLostWithAWorker) {
  EXPECT_EQ(run_through("run", {"--workers", "3", "--chaos", "kill:worker=2,step=11;kill:worker=1,step=54"}), "");
  expect_each_sample_once_an_epoch(consumed("run"));
}

// The data position saved by one worker meant other samples with two workers.
TEST_F(KnownBug, Transformers40245SamplesLostFromOneWorkerToTwo) {
  // Two workers are needed: the remaining one holds the state until another has received it.
  EXPECT_EQ(run_through("joined", {"--workers", "2", "--min-workers", "2", "--chaos",
                                   "join:step=15;kill:worker=2,step=20;drain:worker=1,step=110"}),
            "");
  expect_each_sample_once_an_epoch(consumed("joined"));
  // The same from a checkpoint.
  (void)kill_in_between("resumed", "1");
  EXPECT_EQ(run_through("resumed", {"--workers", "2", "--resume"}), "");
  expect_each_sample_once_an_epoch(consumed("resumed"));
}

// Shards of data assigned to a lost worker, or by a lost master, were lost or assigned twice.
TEST_F(KnownBug, DLRover711And770DataLostOrRepeatedWithWorkerOrMaster) {
  EXPECT_EQ(run_through("run", {"--workers", "3", "--chaos",
                                "kill:worker=3,step=13;kill:coordinator,step=30;join:step=50;kill:worker=1,step=90"}),
            "");
  expect_each_sample_once_an_epoch(consumed("run"));
}

// The loss jumped after a recovery. Here it has the same bits, step by step, as without a failure.
TEST_F(KnownBug, DLRover1097LossJumpsAfterRecovery) {
  EXPECT_EQ(run_through("run", {"--workers", "2", "--chaos", "kill:worker=1,step=30;kill:all,step=95"}), "");
  std::vector<double> losses;
  for (const auto& line : test::lines_of(read_file(folder_ / "run" / "metrics.jsonl"))) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) losses.push_back(json["loss"]);
  }
  const std::vector<LedgerLine> whole = steps("whole");
  ASSERT_EQ(losses.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(losses[i], whole[i].loss) << "step " << i + 1;
}

// The newest folder was chosen although its checkpoint was never finished.
TEST_F(KnownBug, MaxText5260AnUncommittedCheckpointIsChosen) {
  const int64_t newest = kill_in_between("run", "2");
  const fs::path checkpoints = folder_ / "run" / "checkpoints", good = checkpoints / fmt::format("step-{}", newest);
  const auto later = [&](int steps) { return fmt::format("step-{}", newest + steps); };
  fs::copy(good, checkpoints / fmt::format(".writing-{}", newest + 1));  // not renamed yet
  fs::copy(good, checkpoints / later(2));                                // has another step
  fs::copy(good, checkpoints / later(3));                                // without its manifest
  fs::remove(checkpoints / later(3) / "manifest.json");
  fs::create_directories(checkpoints / later(4));  // empty
  const test::Ended resumed = wait(start("run", {"--workers", "2", "--resume"}), "run");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find(fmt::format("resuming after step {}\n", newest)), std::string::npos) << resumed.err;
  EXPECT_EQ(ledger("run"), undisturbed());
}

// The global batch changed with the number of replicas.
TEST_F(KnownBug, Torchft186TheGlobalBatchIsNotConstant) {
  EXPECT_EQ(run_through("run", {"--workers", "4", "--chaos",
                                "kill:worker=2,step=20;drain:worker=1,step=50;join:step=60;join:step=80"}),
            "");
  const auto steps = consumed("run");
  ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(steps[i].size(), static_cast<size_t>(i % 8 == 7 ? 1 : kBatch)) << "step " << i + 1;
}

// A checkpoint could be loaded only by the number of workers that had written it.
TEST_F(KnownBug, DeepSpeed6503And6691ACheckpointIsOfOneSize) {
  const int64_t newest = kill_in_between("three", "3");
  EXPECT_TRUE(
      fs::exists(folder_ / "three" / "checkpoints" / fmt::format("step-{}", newest) / "part-2-of-3.safetensors"));
  for (const char* workers : {"1", "2", "5"}) {
    fs::copy(folder_ / "three", folder_ / workers, fs::copy_options::recursive);
    EXPECT_EQ(run_through(workers, {"--workers", workers, "--resume"}), "");
    const std::string said = read_file(folder_ / (std::string(workers) + ".err"));
    EXPECT_NE(said.find(fmt::format("resuming after step {}\n", newest)), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace elinvar
