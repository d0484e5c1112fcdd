// A job whose output is not read trains on. A command whose result cannot be printed fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"
#include "tools/cli/program_beside.h"

namespace elinvar {
namespace {

class StandardStreams : public test::TinyJob {
 protected:
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  // Runs a command in a shell and returns its exit code.
  int shell(const std::string& command) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Returns the command of the job in the folder NAME.
  std::string job(const std::string& name, const std::string& more = "") const {
    return fmt::format("'{}' run '{}' --run-dir '{}' --threads 1 --workers 2 {}", program_beside("train").string(),
                       at("job.toml"), at(name), more);
  }
  void expect_undisturbed(const std::string& name) const {
    EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
    EXPECT_EQ(ledger(name), undisturbed());
  }
};

TEST_F(StandardStreams, AReaderThatGoesAwayEndsNoJob) {
  EXPECT_EQ(
      shell(fmt::format("{{ {} 2>&1; echo $? > '{}'; }} | head -n 1 > '{}'", job("run"), at("code"), at("first"))), 0);
  EXPECT_NE(read_file(at("first")), "");
  EXPECT_EQ(read_file(at("code")), "0\n");
  expect_undisturbed("run");
}

// Each coordinator that takes over inherits the broken pipe.
TEST_F(StandardStreams, NorDoesItEndThoseThatTakeOver) {
  const std::string chaos = "--chaos 'kill:coordinator,step=50' --set run.log_every=1";
  shell(fmt::format("{} 2>&1 | head -n 1 > '{}'", job("run", chaos), at("first")));
  expect_undisturbed("run");
  EXPECT_NE(read_file(folder_ / "run" / "result.json").find("\"finished\""), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "coordinators" / "3.json"));
}

// The reader may be stopped, or be a terminal after Ctrl-S.
TEST_F(StandardStreams, AReaderThatDoesNotReadHoldsUpNoJob) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_GE(::fcntl(ends[1], F_SETPIPE_SZ, 4096), 0);
  EXPECT_EQ(shell(job("run", fmt::format("--set run.log_every=1 >&{0} 2>&{0}", ends[1]))), 0);
  for (const int end : ends) ::close(end);
  expect_undisturbed("run");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "coordinators" / "2.json"));
}

TEST_F(StandardStreams, AFullDiskUnderTheLogEndsNoJob) {
  EXPECT_EQ(shell(job("run", "> /dev/full 2> /dev/full")), 0);
  expect_undisturbed("run");
}

// The first file that a program opens gets the lowest free number, which must not be a standard stream's.
TEST_F(StandardStreams, ClosedStreamsMixWithNoFile) {
  EXPECT_EQ(shell(job("run", "<&- >&- 2>&-")), 0);
  expect_undisturbed("run");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "run"))
    if (entry.is_regular_file()) {
      EXPECT_EQ(read_file(entry.path()).find("final step"), std::string::npos) << entry.path();
    }
}

TEST_F(StandardStreams, AResultThatCannotBePrintedIsAFailure) {
  const std::string repro = program_beside("repro").string(), train = program_beside("train").string(),
                    whole = at("whole");
  for (const std::string& command :
       {fmt::format("'{}' digest '{}'", repro, whole), fmt::format("'{}' diff '{}' '{}'", repro, whole, whole),
        fmt::format("'{}' devices", train), fmt::format("'{}' --help", train)}) {
    EXPECT_EQ(shell(command + " > /dev/null"), 0) << command;
    EXPECT_EQ(shell(fmt::format("{} > /dev/full 2> '{}'", command, at("err"))), 3) << command;
    EXPECT_NE(read_file(at("err")).find("cannot write to standard output: No space left"), std::string::npos)
        << command;
  }
}

TEST_F(StandardStreams, ATerminalThatHangsUpStopsTheJobWithACheckpoint) {
  const pid_t job = start("run", {"--workers", "2", "--chaos", "stall:worker=1,step=60,seconds=1"});
  reach("run", 45);
  kill(job, SIGHUP);
  kill(job, SIGHUP);  // from the kernel and from the shell
  const test::Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("with a checkpoint"), std::string::npos) << ended.err;
  EXPECT_EQ(wait(start("run", {"--resume"}), "run").code, 0);
  expect_undisturbed("run");
}

}  // namespace
}  // namespace elinvar
