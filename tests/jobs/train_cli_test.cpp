// The train command as a user sees it: a process that gives the same bits, and continues after a stop.
#include <cmath>
#include <csignal>
#include <fstream>

#include "elastic/ledger/ledger.h"
#include "tensor/base/file.h"
#include "tensor/isa.h"
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TrainCommand;

TEST_F(TrainCommand, TheSameBitsForAnyThreadsInstructionSetAndPrefetching) {
  const Ended first = run("images.toml", "first", {"--threads", "1"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.last_line().find("final step=12 loss="), 0u);
  std::vector<std::vector<std::string>> variants = {{"--threads", "2"},
                                                    {"--threads", "3"},
                                                    {"--set", "data.threads=0"},
                                                    {"--set", "data.prefetch=0"},
                                                    {"--set", "data.threads=3", "--set", "data.cache_mb=0"}};
  for (Isa isa : available_isas()) variants.push_back({"--threads", "2", "--isa", name_of(isa)});
  for (size_t i = 0; i < variants.size(); ++i) {
    const Ended other = run("images.toml", std::to_string(i), variants[i]);
    EXPECT_EQ(other.last_line(), first.last_line()) << variants[i][1] << other.err;
    EXPECT_EQ(ledger(std::to_string(i)), ledger("first"));
  }
  EXPECT_NE(run("images.toml", "other", {"--set", "run.seed=6"}).last_line(), first.last_line());
}

TEST_F(TrainCommand, TextTheSameBitsAndResumed) {
  const Ended first = run("text.toml", "first", {"--threads", "1", "--set", "run.checkpoint_every=3"});
  ASSERT_EQ(first.code, 0) << first.err;
  for (Isa isa : available_isas()) {
    const std::string name = name_of(isa);
    EXPECT_EQ(run("text.toml", name, {"--threads", "3", "--isa", name, "--set", "run.checkpoint_every=3"}).last_line(),
              first.last_line());
  }
  fs::remove_all(folder_ / "first" / "checkpoints" / "step-8");
  const std::string before = ledger("first");
  EXPECT_EQ(run("text.toml", "first", {"--resume", "--set", "run.checkpoint_every=3"}).last_line(), first.last_line());
  EXPECT_EQ(ledger("first"), before);
}

TEST_F(TrainCommand, ResumesFromAnyCheckpointAndAnyLedger) {
  const Ended whole = run("images.toml", "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::string lines = ledger("whole");
  for (int from : {4, 8, 12}) {
    const std::string name = "from" + std::to_string(from);
    fs::copy(folder_ / "whole", folder_ / name, fs::copy_options::recursive);
    for (int step : {4, 8, 12})
      if (step > from) fs::remove_all(folder_ / name / "checkpoints" / ("step-" + std::to_string(step)));
    // A crash may have left all lines, or those up to the checkpoint and a torn one.
    size_t end = 0;
    for (int line = 0; line <= from; ++line) end = lines.find('\n', end) + 1;
    if (from != 8) fs::resize_file(folder_ / name / "ledger.jsonl", std::min(end + 17, lines.size()));
    const fs::path metrics = folder_ / name / "metrics.jsonl";  // written after the ledger
    fs::resize_file(metrics, fs::file_size(metrics) / 2);
    const Ended resumed = run("images.toml", name, {"--resume"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("resuming after step " + std::to_string(from)), std::string::npos) << resumed.err;
    EXPECT_EQ(resumed.last_line(), whole.last_line());
    EXPECT_EQ(ledger(name), lines);
  }
}

TEST_F(TrainCommand, KilledAtAnyTimeItResumes) {
  const Ended whole = run("images.toml", "whole", {"--set", "run.steps=150"});
  for (int trial = 0; trial < 4; ++trial) {
    const pid_t child =
        start({"run", folder_ / "images.toml", "--run-dir", folder_ / "killed", "--set", "run.steps=150", "--resume"});
    // Each time some steps later than before, at any point within a step.
    reach("killed", 25 * (trial + 1));
    kill(child, SIGKILL);
    EXPECT_EQ(wait(child).code, 128 + SIGKILL);
  }
  const Ended end = run("images.toml", "killed", {"--set", "run.steps=150", "--resume"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("resuming after step"), std::string::npos) << end.err;
  EXPECT_EQ(end.last_line(), whole.last_line());
  EXPECT_EQ(ledger("killed"), ledger("whole"));
}

TEST_F(TrainCommand, AnInterruptionLeavesACheckpoint) {
  const std::vector<std::string> more = {"--set", "run.steps=3000", "--set", "run.checkpoint_every=0"};
  const Ended whole = run("images.toml", "whole", more);
  const pid_t child =
      start({"run", folder_ / "images.toml", "--run-dir", folder_ / "run", more[0], more[1], more[2], more[3]});
  reach("run", 1);
  kill(child, SIGTERM);
  const Ended stopped = wait(child);
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  const std::string command = fmt::format("go on with\n  train resume {}\n", (folder_ / "run").string());
  EXPECT_NE(stopped.err.find(command), std::string::npos) << stopped.err;
  EXPECT_EQ(stopped.out.find("final"), std::string::npos);
  EXPECT_NE(read_file(folder_ / "run" / "result.json").find("\"interrupted\""), std::string::npos);
  EXPECT_FALSE(fs::is_empty(folder_ / "run" / "checkpoints"));

  const Ended resumed = train({"resume", folder_ / "run"});
  EXPECT_EQ(resumed.last_line(), whole.last_line());
  EXPECT_EQ(ledger("run"), ledger("whole"));
}

// The advice is followed as it is printed, in the folder in which the run was started.
TEST_F(TrainCommand, TheAdviceAfterCtrlCIsACommandThatWorks) {
  const auto in_folder = [&](const std::vector<std::string>& arguments) {
    return spawn(arguments, "train", {"sh", "-c", fmt::format("cd {} && exec \"$@\"", folder_.path()), "sh"});
  };
  const auto follow = [&](const std::string& said) {
    const std::string begin = "train resume ";
    const size_t at = said.find(begin);
    ASSERT_NE(at, std::string::npos) << said;
    const size_t from = at + begin.size();
    const std::string directory = said.substr(from, said.find_first_of(" \n", from) - from);
    EXPECT_EQ(directory, "run") << said;
    const Ended resumed = wait(in_folder({"resume", directory, "--threads", "1"}));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.last_line().find("final step=3000 "), 0u) << resumed.out;
    EXPECT_NE(read_file(folder_ / "run" / "result.json").find("\"finished\""), std::string::npos);
  };
  const auto begin = [&] {
    fs::remove_all(folder_ / "run");
    const pid_t child = in_folder({"run", "images.toml", "--run-dir", "run", "--threads", "1", "--set",
                                   "run.steps=3000", "--set", "run.checkpoint_every=100"});
    reach("run", 150);
    EXPECT_TRUE(until([&] {  // a checkpoint is written beside the steps
      const fs::path checkpoints = folder_ / "run" / "checkpoints";
      return fs::exists(checkpoints / "step-100" / "manifest.json") ||
             fs::exists(checkpoints / "step-200" / "manifest.json");
    }));
    return child;
  };
  const pid_t once = begin();
  ::kill(once, SIGINT);
  const Ended stopped = wait(once);
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_NE(stopped.err.find("of 3000, with a checkpoint; go on with\n  train resume run\n"), std::string::npos)
      << stopped.err;
  follow(stopped.err);

  const pid_t twice = begin();
  std::ifstream workers(fmt::format("/proc/{0}/task/{0}/children", twice));
  for (pid_t worker; workers >> worker;) ::kill(worker, SIGSTOP);  // so that it cannot end in an orderly way
  for (const int number : {SIGINT, SIGTERM}) ::kill(twice, number);
  const Ended ended = wait(twice);
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_NE(ended.err.find("interrupted twice: it ends at once; train resume run goes on from the checkpoint of step "),
            std::string::npos)
      << ended.err;
  follow(ended.err);
}

TEST_F(TrainCommand, ResumingRefusesOtherSettingsAndFoldersWithoutARun) {
  ASSERT_EQ(run("images.toml", "run").code, 0);
  const Ended other = train({"resume", folder_ / "run", "--set", "optimizer.lr=0.1"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("optimizer.lr changed from 0.05 to 0.1"), std::string::npos) << other.err;
  const Ended exact = run("images.toml", "run", {"--resume", "--numerics", "exact"});
  EXPECT_EQ(exact.code, 2);
  EXPECT_NE(exact.err.find("run.numerics changed from \"portable\" to \"exact\""), std::string::npos) << exact.err;
  EXPECT_EQ(train({"resume", folder_ / "run", "--set", "run.log_every=1"}).code, 0);
  const Ended none = train({"resume", folder_ / "nothing"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("nothing is no run directory"), std::string::npos) << none.err;
  const Ended taken = train({"run", folder_ / "run"});
  EXPECT_EQ(taken.code, 2);
  EXPECT_NE(taken.err.find("is a run directory, not a configuration; did you mean resume"), std::string::npos)
      << taken.err;
}

// If only the coordinator is killed, its workers train on under another.
TEST_F(TrainCommand, TwoInterruptionsEndTheWorkersToo) {
  const pid_t child = start({"run", folder_ / "images.toml", "--run-dir", folder_ / "run", "--set", "run.steps=100000",
                             "--set", "run.checkpoint_every=0", "--workers", "2"});
  reach("run", 1);
  std::ifstream workers(fmt::format("/proc/{0}/task/{0}/children", child));
  int count = 0;
  // so that they cannot end in an orderly way
  for (pid_t worker; workers >> worker; ++count) ::kill(worker, SIGSTOP);
  EXPECT_EQ(count, 2);
  for (const int number : {SIGINT, SIGTERM}) ::kill(child, number);
  const Ended ended = wait(child);
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("interrupted twice: it ends at once; it has no checkpoint yet, so train resume"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(5)), "");
}

TEST_F(TrainCommand, ADamagedCheckpointIsPassedOverAndSaidSo) {
  const Ended whole = run("images.toml", "run");
  const std::string before = ledger("run");
  const auto damage = [&](int step) {
    const fs::path part =
        folder_ / "run" / "checkpoints" / ("step-" + std::to_string(step)) / "part-0-of-1.safetensors";
    fs::resize_file(part, fs::file_size(part) / 2);
  };
  damage(12);
  const Ended resumed = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(resumed.code, 0);
  EXPECT_NE(resumed.err.find("step-12 cannot be used"), std::string::npos) << resumed.err;
  EXPECT_NE(resumed.err.find("resuming after step 8"), std::string::npos) << resumed.err;
  EXPECT_EQ(resumed.last_line(), whole.last_line());
  EXPECT_EQ(ledger("run"), before);

  for (int step : {4, 8, 12}) damage(step);
  const Ended none = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("no checkpoint is good"), std::string::npos) << none.err;
  EXPECT_EQ(train({"eval", folder_ / "run"}).code, 3);
}

TEST_F(TrainCommand, ARunThatIsNotReproducibleIsFound) {
  run("images.toml", "run");
  std::string lines = ledger("run");
  const size_t at = lines.find("{\"step\":10,"), end = lines.find('\n', at);
  LedgerLine line = LedgerLine::parse(lines.substr(at, end - at));
  line.loss = std::nextafter(line.loss, 0.0);
  replace_file(folder_ / "run" / "ledger.jsonl", lines.replace(at, end - at, line.text()));
  fs::remove_all(folder_ / "run" / "checkpoints" / "step-12");
  const Ended resumed = run("images.toml", "run", {"--resume"});
  EXPECT_EQ(resumed.code, 3);
  EXPECT_NE(resumed.err.find("step 10 was recorded before with other facts (loss)"), std::string::npos) << resumed.err;
}

}  // namespace
}  // namespace elinvar
