// This program continues runs that an earlier program began: version 9 of the protocol wrote
// tests/golden/run_of_protocol_9, and its only worker was killed after 16 of 30 updates.
#include <gtest/gtest.h>

#include <filesystem>

#include "tensor/base/file.h"
#include "tests/jobs/train_command.h"
#include "tests/places.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::TrainCommand;

class OldRun : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override { fs::copy(kOld, folder_ / "run", fs::copy_options::recursive); }
  test::Ended train(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"run", folder_ / "run/job.toml", "--run-dir", folder_ / name};
    arguments.insert(arguments.end(), {"--threads", "1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return wait(spawn(arguments, name), name);
  }

  const fs::path kOld = fs::path(ELINVAR_SOURCE_DIR) / "tests/golden/run_of_protocol_9";
  const std::string kDigest = "digest=2dedacd69ae2cf4e3bedd046db209b9d";  // of the whole run by the earlier program
};

TEST_F(OldRun, GoesOnAndEndsAsTheEarlierProgramWouldHaveEndedIt) {
  const test::Ended resumed = train("run", {"--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.last_line().find(kDigest), std::string::npos) << resumed.last_line();
  const std::string before = read_file(kOld / "ledger.jsonl"), after = read_file(folder_ / "run/ledger.jsonl");
  EXPECT_EQ(after.substr(0, before.size()), before) << "what was on file stays as it was";

  const test::Ended whole = train("whole", {});
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(whole.last_line().find(kDigest), std::string::npos) << whole.last_line();
  for (const char* file : {"ledger.jsonl", "digests.jsonl"})
    EXPECT_EQ(read_file(folder_ / "run" / file), read_file(folder_ / "whole" / file)) << file;
}

TEST_F(OldRun, GoesOnWithTheOptimizersStateSharded) {
  const test::Ended resumed =
      train("run", {"--resume", "--workers", "2", "--min-workers", "2", "--arrangement", "zero=1", "--copies", "1"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.last_line().find(kDigest), std::string::npos) << resumed.last_line();
}

TEST_F(OldRun, IsReadByReproAndAsAResultThatIsReplayed) {
  const test::Ended digest = wait(spawn_program("repro", {"digest", folder_ / "run"}, "digest"), "digest");
  EXPECT_EQ(digest.code, 0) << digest.err;
  const test::Ended verified =
      wait(spawn_program("repro", {"verify", folder_ / "run", "--threads", "1"}, "verify"), "verify");
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
}

// Earlier programs had one virtual rank where the configuration does not say how many.
TEST_F(TrainCommand, ARunThatWasBegunWithAnotherDefaultKeepsItsVirtualRanks) {
  std::string config = test::kTrainImages;
  for (const auto& [from, to] :
       {std::pair("virtual_ranks = 3\n", ""), std::pair("batch_size = 12", "batch_size = 24"),
        std::pair("steps = 12", "steps = 400"), std::pair("checkpoint_every = 4", "checkpoint_every = 100")}) {
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    config.replace(at, std::string(from).size(), to);
  }
  folder_.write("job.toml", config);
  const auto expect_ranks = [](const test::Ended& ended, const std::string& ranks) {
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.out.find(" of 24 over " + ranks + " virtual ranks\n"), std::string::npos) << ended.out;
  };
  expect_ranks(run("job.toml", "new"), "3");
  const std::vector<std::string> one = {"--set", "run.virtual_ranks=1"};
  expect_ranks(run("job.toml", "whole", one), "1");
  const auto begin = [&](const std::string& name) {
    expect_ranks(run("job.toml", name, {one[0], one[1], "--until", "2"}), "1");
    ASSERT_LT(recorded(name), 400) << "nothing is left to do";
  };
  begin("run");
  expect_ranks(run("job.toml", "run", {"--resume"}), "1");
  EXPECT_EQ(ledger("run"), ledger("whole"));
  begin("resumed");
  expect_ranks(train({"resume", folder_ / "resumed"}), "1");
  EXPECT_EQ(ledger("resumed"), ledger("whole"));

  begin("other");
  const test::Ended other = run("job.toml", "other", {"--resume", "--set", "run.virtual_ranks=2"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("run.virtual_ranks changed from 1 to 2"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace elinvar
