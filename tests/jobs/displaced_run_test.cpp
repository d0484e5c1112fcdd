// Files of a run that are deleted, moved or replaced while it trains: the run restores them or ends with a clear error.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "elastic/run/term.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST(HeldTerm, TellsWhetherItsDirectoryIsStillThere) {
  using Standing = HeldTerm::Standing;
  const test::TemporaryFolder folder;
  const fs::path run = folder / "run", elsewhere = folder / "elsewhere";
  fs::create_directory(run);
  HeldTerm held(run, {.number = 1, .run = 1, .endpoint = "e"});
  EXPECT_EQ(held.standing(), Standing::held);
  fs::rename(run, elsewhere);
  EXPECT_EQ(held.standing(), Standing::displaced);
  EXPECT_NE(test::message_of<Failure>([&] { (void)held.newest(); }).find(run.string() + " was deleted, moved"),
            std::string::npos);
  fs::rename(elsewhere, run);
  EXPECT_TRUE(held.newest());
  const HeldTerm next(run, {.number = 2, .run = 1, .endpoint = "f"});
  EXPECT_EQ(held.standing(), Standing::superseded);
  fs::remove_all(run);
  EXPECT_EQ(next.standing(), Standing::displaced);
  fs::create_directory(run);
  const HeldTerm another(run, {.number = 2, .run = 1, .endpoint = "g"});
  EXPECT_EQ(next.standing(), Standing::displaced) << "the directory is another one";
}

class DisplacedRun : public test::TinyJob {
 protected:
  // Starts two workers with slow steps, so that the job is at work while files disappear.
  pid_t begin() {
    const pid_t job = start("run", {"--workers", "2", "--chaos", "stall:worker=1,step=60,seconds=2"});
    reach("run", 45);
    return job;
  }
  void expect_told_of_the_loss(pid_t job) {
    const test::Ended ended = wait(job, "run", std::chrono::seconds(30));
    EXPECT_EQ(ended.code, 3) << ended.out;
    EXPECT_NE(ended.err.find((folder_ / "run").string() + " was deleted, moved or replaced"), std::string::npos)
        << ended.err;
    EXPECT_EQ(ended.out.find("final"), std::string::npos) << ended.out;
    EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
  }
  void expect_the_rest(const std::string& name) {
    const test::Ended ended = wait(start(name, {"--resume"}), name);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), undisturbed());
    EXPECT_EQ(digests(name), digests("whole"));
  }
};

// The run concurrently writes and removes files in the folder, which interrupts the removal.
void remove_while_it_writes(const fs::path& folder) {
  std::error_code interrupted;
  for (int i = 0; i < 1000; ++i) {
    fs::remove_all(folder, interrupted);
    if (!interrupted) return;
  }
  ADD_FAILURE() << folder << ": " << interrupted.message();
}

TEST_F(DisplacedRun, ADirectoryThatIsDeletedEndsIt) {
  const pid_t job = begin();
  remove_while_it_writes(folder_ / "run");
  expect_told_of_the_loss(job);
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "nothing is made anew that nobody could go on with";
}

TEST_F(DisplacedRun, ADirectoryThatIsMovedEndsItAndItGoesOnThere) {
  const pid_t job = begin();
  fs::rename(folder_ / "run", folder_ / "moved");
  expect_told_of_the_loss(job);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  expect_the_rest("moved");
}

TEST_F(DisplacedRun, ADirectoryThatIsReplacedIsLeftAlone) {
  const pid_t job = begin();
  fs::rename(folder_ / "run", folder_ / "moved");
  fs::copy(folder_ / "moved", folder_ / "run", fs::copy_options::recursive);
  const std::string copied = ledger("run");
  expect_told_of_the_loss(job);
  EXPECT_EQ(ledger("run"), copied);
  expect_the_rest("run");
  expect_the_rest("moved");
}

TEST_F(DisplacedRun, FilesThatAreDeletedAreWrittenAgain) {
  const pid_t job = begin();
  for (const char* name : {"ledger.jsonl", "digests.jsonl", "events.jsonl", "metrics.jsonl"})
    fs::remove(folder_ / "run" / name);
  remove_while_it_writes(folder_ / "run" / "checkpoints");
  const test::Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(digests("run"), digests("whole"));
  EXPECT_EQ(events("run", "file").size(), 3u);
  EXPECT_EQ(test::lines_of(read_file(folder_ / "run" / "metrics.jsonl")).size(),
            test::lines_of(read_file(folder_ / "whole" / "metrics.jsonl")).size());
  expect_the_rest("run");
}

TEST_F(DisplacedRun, ALedgerThatIsCutOffEndsIt) {
  const pid_t job = begin();
  fs::resize_file(folder_ / "run" / "ledger.jsonl", 300);
  const test::Ended ended = wait(job, "run", std::chrono::seconds(30));
  EXPECT_EQ(ended.code, 3) << ended.out;
  EXPECT_NE(ended.err.find("ledger.jsonl was cut off while the run was writing to it"), std::string::npos) << ended.err;
}

// No coordinator runs that could write it again.
TEST_F(DisplacedRun, ALedgerThatIsLostWithItsCoordinatorEndsIt) {
  const pid_t job = start("run", {"--workers", "2", "--chaos", "join:step=1000"});  // reports each step at once
  reach("run", 45);
  kill(job, SIGKILL);
  fs::remove(folder_ / "run" / "ledger.jsonl");
  EXPECT_EQ(remaining_children(std::chrono::seconds(50)), "") << read_file(folder_ / "run" / "events.jsonl");
  EXPECT_NE(read_file(folder_ / "run.err").find("ledger.jsonl ends before step 1, which an earlier coordinator"),
            std::string::npos)
      << read_file(folder_ / "run.err");
}

}  // namespace
}  // namespace elinvar
