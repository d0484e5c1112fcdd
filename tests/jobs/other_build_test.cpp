// Workers of another build of the program, which are admitted if they compute the bits of the run.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"
#include "tools/cli/program_beside.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

class OtherBuild : public test::TinyJob {
 protected:
  // Makes a copy of `train` with another build-id, as if the same sources were built elsewhere.
  std::string built_elsewhere() const {
    std::string program = read_file(program_beside("train"));
    const std::string note = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"s;  // sizes of name and content, type, name
    const size_t at = program.find(note);
    if (at == std::string::npos) return "";
    program[at + note.size()] ^= 1;
    const std::string path = folder_ / "elsewhere";
    replace_file(path, program);
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  template <class Condition>
  void wait_until(Condition&& condition) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    bool met = false;  // a condition may hold only for a while
    while (!(met = condition()) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(met) << read_file(folder_ / "run.err") << read_file(folder_ / "run" / "events.jsonl");
  }
  pid_t join(const std::string& program, const std::string& name) const {
    return spawn_program(program, {"join", endpoint("run"), "--threads", "1"}, name);
  }
};

TEST_F(OtherBuild, JoinsIfItRepeatsTheFirstUpdates) {
  const std::string elsewhere = built_elsewhere();
  if (elsewhere.empty()) GTEST_SKIP() << "the linker leaves no build-id";
  const pid_t job = start("run", {"--steps", "1000000"});
  reach("run", 10);
  const test::Ended wrong = wait(join("faulty/train", "faulty"), "faulty");
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("another build of this program"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("and computes other bits: the gradient of update 1 is"), std::string::npos) << wrong.err;
  const pid_t right = join(elsewhere, "elsewhere");
  wait_until([&] {
    const auto workers = status("run").value("workers", nlohmann::json::array());
    return workers.size() == 2 && workers[1].at("state") == "member";
  });
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
  EXPECT_EQ(wait(job, "run").code, 0);
  EXPECT_EQ(wait(right, "elsewhere").code, 0);
  const auto lines = test::lines_of(ledger("run")), whole = test::lines_of(undisturbed());
  for (size_t i = 1; i + 1 < std::min(lines.size(), whole.size()); ++i) EXPECT_EQ(lines[i], whole[i]);
}

TEST_F(OtherBuild, HasNothingToRepeatBeforeThereAreUpdates) {
  const std::string elsewhere = built_elsewhere();
  if (elsewhere.empty()) GTEST_SKIP() << "the linker leaves no build-id";
  const pid_t job = start("run", {"--workers", "1", "--min-workers", "2"});
  wait_until([&] { return status("run").value("workers", nlohmann::json::array()).size() == 1; });
  const test::Ended early = wait(join(elsewhere, "elsewhere"), "elsewhere");
  EXPECT_EQ(early.code, 3);
  EXPECT_NE(early.err.find("has not shown that it computes the same bits"), std::string::npos) << early.err;
  const pid_t same = join("train", "same");
  EXPECT_EQ(wait(job, "run").code, 0);
  EXPECT_EQ(wait(same, "same").code, 0);
  EXPECT_EQ(ledger("run"), undisturbed());

  const pid_t free = start("any", {"--workers", "1", "--min-workers", "2", "--any-build"});
  wait_until([&] { return status("any").value("workers", nlohmann::json::array()).size() == 1; });
  const pid_t taken = spawn_program(elsewhere, {"join", endpoint("any"), "--threads", "1"}, "taken");
  EXPECT_EQ(wait(free, "any").code, 0);
  EXPECT_EQ(wait(taken, "taken").code, 0);
  EXPECT_EQ(ledger("any"), undisturbed());
}

// A run may continue with another build, and reports it.
TEST_F(OtherBuild, GoesOnWithARunAndIsTold) {
  const std::string elsewhere = built_elsewhere();
  if (elsewhere.empty()) GTEST_SKIP() << "the linker leaves no build-id";
  EXPECT_EQ(wait(start("run", {"--until", "50"}), "run").code, 0);
  const pid_t job = spawn_program(
      elsewhere, {"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1", "--resume"}, "run");
  const test::Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("going on with another build of this program"), std::string::npos) << ended.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(events("run", "reason").size() > 0, true);
}

}  // namespace
}  // namespace elinvar
