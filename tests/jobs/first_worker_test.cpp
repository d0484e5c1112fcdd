// Jobs that start no workers themselves (--workers 0) and wait for the first that joins.
#include <chrono>
#include <thread>

#include "tensor/base/file.h"
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;

class FirstWorker : public test::TrainCommand {
 protected:
  pid_t start_job(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--workers", "0", "--threads", "1"});
    return spawn(std::move(arguments), "job");
  }
  // Waits until this process is the coordinator that the run directory names.
  void await_coordinator(pid_t job) const {
    const fs::path said = folder_ / "run" / "coordinator.json";
    for (int i = 0; i < 6000; ++i) {
      if (fs::exists(said)) {
        const auto record = nlohmann::json::parse(read_file(said), nullptr, /*allow_exceptions=*/false);
        if (record.is_object() && record.value("pid", pid_t{0}) == job) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no coordinator: " << read_file(folder_ / "job.err");
  }
};

TEST_F(FirstWorker, IsWaitedForAsLongAsHoldSays) {
  const auto began = std::chrono::steady_clock::now();
  const pid_t job = start_job({"run", folder_ / "text.toml", "--run-dir", folder_ / "run", "--hold", "2"});
  // Less than the default of --hold, and than the time that workers of the job's own have.
  const Ended ended = wait(job, "job", std::chrono::seconds(25));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.err, fmt::format("train: no worker has introduced itself within 2 s; train join {} brings one, and "
                                   "--hold sets how long to wait\n",
                                   (folder_ / "run").string()));
  // Nothing was kept that would be in the way.
  const Ended again = run("text.toml", "run");
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(FirstWorker, JoinsByTheRunDirectoryWithinThatTime) {
  const pid_t job = start_job({"run", folder_ / "text.toml", "--run-dir", folder_ / "run", "--hold", "300"});
  await_coordinator(job);
  const Ended joined = train({"join", folder_ / "run", "--threads", "1"});
  EXPECT_EQ(joined.code, 0) << joined.err;
  const Ended ended = wait(job, "job");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.last_line().find("final step=8 "), 0u) << ended.out;
}

// The result of the part that was stopped stays on file until the run goes on; the run must not look as if it were
// over.
TEST_F(FirstWorker, JoinsAResumedRunByItsDirectory) {
  const Ended stopped = run("images.toml", "run", {"--set", "run.steps=3000", "--until", "4"});
  ASSERT_EQ(stopped.code, 0) << stopped.err;
  const Ended over = train({"join", folder_ / "run", "--threads", "1"});
  EXPECT_EQ(over.code, 3);
  EXPECT_NE(over.err.find("is over: interrupted at step "), std::string::npos) << over.err;

  const pid_t job = start_job({"resume", folder_ / "run"});
  await_coordinator(job);
  EXPECT_TRUE(fs::exists(folder_ / "run" / "result.json")) << "the run has gone on without a worker";
  const Ended joined = train({"join", folder_ / "run", "--threads", "1"});
  EXPECT_EQ(joined.code, 0) << joined.err;
  const Ended ended = wait(job, "job");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.last_line().find("final step=3000 "), 0u) << ended.out;

  // A finished run stays finished.
  const Ended again = train({"resume", folder_ / "run", "--until", "10"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.last_line().find("final step=3000 "), 0u) << again.out;
}

}  // namespace
}  // namespace elinvar
