// Relative paths of a configuration begin in the folder in which the run was started, wherever it is used later. Here
// each folder has data of that name, and they differ.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tensor/base/file.h"
#include "tests/jobs/train_command.h"
#include "tools/config/config.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Ended;

class OtherFolder : public test::TrainCommand {
 protected:
  void SetUp() override {
    TrainCommand::SetUp();
    for (const char* folder : {"here", "there"}) {
      std::string text;
      for (int i = 0; i < 400; ++i) text += fmt::format("line {} is {}\n", i, folder);
      text.resize(5000);  // all have the same size
      folder_.write(fmt::format("{}/words/a.txt", folder), text);
    }
  }
  pid_t start_in(const std::string& folder, std::vector<std::string> arguments, const std::string& name) const {
    return spawn(std::move(arguments), name,
                 {"sh", "-c", fmt::format("cd {} && exec \"$@\"", (folder_ / folder).string()), "sh"});
  }
  Ended in(const std::string& folder, std::vector<std::string> arguments) const {
    return wait(start_in(folder, std::move(arguments), folder), folder);
  }
  // Trains on the words in `here`.
  Ended begin(const std::string& run, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"run", "../text.toml", "--run-dir", "../runs/" + run, "--threads", "1", "--set",
                               "data.kind=text", "--set", "data.path=words"});
    return in("here", std::move(more));
  }
  std::string score(const std::string& folder, const std::string& run) const {
    const Ended scored = in(folder, {"eval", "../runs/" + run, "--threads", "1"});
    EXPECT_EQ(scored.code, 0) << scored.err;
    return scored.out;
  }
  Json environment(const std::string& run) const {
    return Json::parse(read_file(folder_ / "runs" / run / "environment.json"));
  }
  // Checks that the recorded path leads from the recorded folder to the data in `here`.
  void expect_data_of_here(const std::string& run) const {
    const fs::path folder = environment(run).at("folder").get<std::string>();
    const fs::path path = read_config(folder_ / "runs" / run / "config.toml").data.path;
    EXPECT_TRUE(fs::equivalent(folder / path, folder_ / "here/words")) << folder << " " << path;
  }
};

TEST_F(OtherFolder, ARunIsScoredOnTheDataOfTheFolderWhereItBegan) {
  const Ended made = begin("x");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(fs::equivalent(environment("x").at("folder").get<std::string>(), folder_ / "here"));
  const std::string expected = score("here", "x");
  EXPECT_EQ(score("there", "x"), expected);

  // The other data would show: a run that does not know its folder uses those of the present one.
  Json without = environment("x");
  without.erase("folder");
  replace_file(folder_ / "runs/x/environment.json", without.dump());
  EXPECT_NE(score("there", "x"), expected);
}

TEST_F(OtherFolder, AResumedRunKeepsItsData) {
  ASSERT_EQ(begin("whole", {"--steps", "2000"}).code, 0);
  const Ended made = begin("x", {"--steps", "2000", "--until", "3"});
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_LT(recorded("runs/x"), 2000) << "nothing is left to do";
  const Ended resumed = in("there", {"resume", "../runs/x", "--threads", "1"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(ledger("runs/x"), ledger("runs/whole"));
  expect_data_of_here("x");
  EXPECT_EQ(score("there", "x"), score("here", "whole"));
  EXPECT_EQ(score("here", "x"), score("here", "whole"));
}

// A coordinator that takes over runs wherever the worker that starts it does.
TEST_F(OtherFolder, AnotherCoordinatorKeepsTheFolder) {
  const pid_t job = start_in("here",
                             {"run", "../text.toml", "--run-dir", "../runs/x", "--threads", "1", "--set",
                              "data.kind=text", "--set", "data.path=words", "--steps", "100000000"},
                             "job");
  reach("runs/x", 20);
  const Json before = environment("x");
  ::kill(job, SIGKILL);
  EXPECT_EQ(wait(job, "job").code, 128 + SIGKILL);
  // Starts at once; the worker would wait for some seconds.
  const pid_t next = start_in("there", {"coordinate", "../runs/x", "--term", "1"}, "next");
  const auto goes_on = [&] {
    return environment("x").at("command").at(1) == "coordinate" && status("runs/x").value("phase", "") == "running";
  };
  for (int i = 0; i < 600 && !goes_on(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(goes_on()) << read_file(folder_ / "next.err");
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "runs/x", "stop"}, "ctl"), "ctl").code, 0);
  const Ended ended = wait(next, "next");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");

  const Json after = environment("x");
  EXPECT_EQ(after.at("folder"), before.at("folder"));
  expect_data_of_here("x");
  EXPECT_EQ(score("there", "x"), score("here", "x"));
}

}  // namespace
}  // namespace elinvar
