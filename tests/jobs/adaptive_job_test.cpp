// Real jobs whose batch changes with their workers: the ledger suffices to repeat them.
#include <gtest/gtest.h>
#include <signal.h>

#include <set>

#include "data/loader.h"
#include "elastic/ledger/ledger.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/tiny_job.h"
#include "tools/config/config.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// 22 samples per epoch, at first in batches of 3. Rank gradients are so small that a reduction always takes longer than
// a further worker would save: the batch grows with the workers.
class AdaptiveJob : public testing::Test, protected test::TrainRuns {
 protected:
  static constexpr int64_t kSteps = 1500;

  void SetUp() override { write_job(kSteps, 600); }

  void write_job(int64_t steps, int64_t ramp_steps) {
    const std::string run = fmt::format("scaling = \"adaptive\"\nbatch_max = 12\nramp_steps = {}\n", ramp_steps);
    folder_.write("job.toml", test::text_of({.steps = steps,
                                             .batch_size = 3,
                                             .virtual_ranks = 3,
                                             .checkpoint_every = 100,
                                             .samples = 22,
                                             .image_size = 4,
                                             .channels = 4,
                                             .run = run,
                                             .data = "threads = 1\n"}));
  }

  pid_t start(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spawn(arguments, name);
  }

  // Runs to the end, resuming as often as necessary.
  void run_through(const std::string& name, std::vector<std::string> options) const {
    for (int part = 0; part < 10; ++part) {
      const test::Ended ended = wait(start(name, options), name, seconds(120));
      if (ended.code == 0) return;
      ASSERT_TRUE(ended.code == 128 + SIGKILL || ended.err.find("no worker is left") != std::string::npos) << ended.err;
      if (part == 0) options.push_back("--resume");
    }
    FAIL() << "it is killed again and again";
  }

  std::vector<LedgerLine> lines(const std::string& name) const {
    std::vector<LedgerLine> lines;
    for (const std::string& line : ledger_steps(folder_ / name / "ledger.jsonl"))
      lines.push_back(LedgerLine::parse(line));
    return lines;
  }

  int changes(const std::string& name) const {
    int changes = 0;
    int64_t batch = 3;
    for (const LedgerLine& line : lines(name)) changes += std::exchange(batch, *line.batch_size) != batch;
    return changes;
  }

  // Every step read the samples that follow those of the previous step, and the last step of a run to the end is the
  // first by which all were read. data_order_test.cpp checks that such a loader reads each sample once per epoch.
  void expect_each_sample_once_an_epoch(const std::string& name, bool to_the_end = true) const {
    const Config config = read_config(folder_ / "job.toml");
    Loader loader(open_dataset(config.data, Split::train),
                  {.seed = config.run.seed, .global_batch = 3, .virtual_ranks = 3, .threads = 0});
    const int64_t goal = loader.cursor(config.run.steps).samples;
    int64_t seen = 0;
    for (const LedgerLine& line : lines(name)) {
      ASSERT_LT(seen, goal) << "step " << line.step;
      const Cursor at{seen, *line.batch_size};
      Hasher hasher;
      for (int vrank = 0; vrank < 3; ++vrank) {
        const Batch batch = loader.batch(at, vrank);
        hasher.add(batch.samples == 0 ? Digest{} : digest(StateDict{{"input", batch.input}, {"target", batch.target}}));
      }
      ASSERT_EQ(hasher.digest(), line.batch) << "step " << line.step;
      seen += loader.samples(at);
    }
    EXPECT_EQ(seen >= goal, to_the_end);
  }
};

TEST_F(AdaptiveJob, DoneAgainItHasTheSameLedger) {
  run_through("run", {"--workers", "2", "--chaos",
                      "join:step=20;kill:worker=2,step=300;join:step=320;drain:worker=1,step=500;"
                      "kill:coordinator,step=550;join:step=600;kill:all,step=700"});
  EXPECT_GE(changes("run"), 1);
  expect_each_sample_once_an_epoch("run");
  const std::string whole = ledger("run");
  run_through("one", {"--workers", "1", "--replay", folder_ / "run"});
  EXPECT_EQ(ledger("one"), whole);
  run_through("disturbed", {"--workers", "3", "--replay", folder_ / "run", "--chaos",
                            "kill:worker=2,step=40;join:step=60;kill:all,step=250;kill:coordinator,step=300"});
  EXPECT_EQ(ledger("disturbed"), whole);

  // Differences are found.
  fs::create_directories(folder_ / "false");
  for (const char* file : {"config.toml", "environment.json"}) fs::copy(folder_ / "run" / file, folder_ / "false");
  std::vector<std::string> told = test::lines_of(whole);
  LedgerLine other = LedgerLine::parse(told[told.size() / 2]);
  other.loss += 1;
  told[told.size() / 2] = other.text();
  replace_file(folder_ / "false/ledger.jsonl", fmt::format("{}\n", fmt::join(told, "\n")));
  const test::Ended ended = wait(start("found", {"--workers", "2", "--replay", folder_ / "false"}), "found");
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("has other facts than in the run that is replayed (loss)"), std::string::npos) << ended.err;
}

// The run and its ramp are so long that neither has ended by the time of the stop, however late the worker joins.
TEST_F(AdaptiveJob, ACheckpointWithinARampIsGoneOnFrom) {
  write_job(/*steps=*/1000000, /*ramp_steps=*/500000);
  const pid_t run = start("run", {"--workers", "2"});
  reach("run", 20);
  const pid_t third = spawn({"join", folder_ / "run", "--threads", "1"}, "third");
  until([&] { return changes("run") > 0; });
  const pid_t stop = spawn({"ctl", folder_ / "run", "stop"}, "stop");
  EXPECT_EQ(wait(stop, "stop").code, 0);
  ASSERT_EQ(wait(run, "run").code, 0);
  wait(third, "third");
  const std::vector<LedgerLine> before = lines("run");
  ASSERT_GE(before.size(), 2u);
  const double lr = before.back().lr;
  EXPECT_NE(lr, before.front().lr);                                          // the ramp has begun
  EXPECT_LT(lr, 0.05 * static_cast<double>(*before.back().batch_size) / 3);  // the ramp has not ended
  const std::string last = std::to_string(before.size() + 300);
  const test::Ended resumed = wait(start("run", {"--workers", "1", "--resume", "--until", last}), "run");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find(fmt::format("resuming after step {}\n", before.size())), std::string::npos);
  EXPECT_GT(lines("run")[before.size()].lr, lr);
  EXPECT_GE(recorded("run"), std::stoll(last));
  expect_each_sample_once_an_epoch("run", /*to_the_end=*/false);
  run_through("again", {"--workers", "1", "--replay", folder_ / "run", "--until", std::to_string(recorded("run"))});
  EXPECT_TRUE(ledger("again").starts_with(ledger("run"))) << "it stops at this step or a little later";
}

TEST_F(AdaptiveJob, SettingsWithoutSenseAreRefused) {
  const auto error = [&](const std::string& setting, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--set", setting});
    const test::Ended ended = wait(start("refused", more), "refused");
    EXPECT_EQ(ended.code, 2);
    return ended.err;
  };
  EXPECT_NE(error("run.batch_max=23").find("= 23 are more than the 22 training samples"), std::string::npos);
  EXPECT_NE(error("run.batch_max=2").find("= 2 are fewer than the 3 samples of run.batch_size"), std::string::npos);
  EXPECT_NE(error("run.batch_max=0").find("is missing: the most samples that a step may have"), std::string::npos);
  EXPECT_NE(error("run.scaling=exact").find("has a meaning only with run.scaling = \"adaptive\""), std::string::npos);
  EXPECT_NE(error("run.seed=1", {"--replay", folder_ / "nothing"}).find("holds no run to replay"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
