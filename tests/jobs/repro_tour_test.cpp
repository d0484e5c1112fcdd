// Every command of repro as a program calls it: with --json it prints one JSON object and nothing else, otherwise text,
// with the same exit code.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "elastic/checkpoint/checkpoint.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/repro_runs.h"
#include "tools/repro/subprocess.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Tour : public test::ReproRuns {
 protected:
  // Returns the object that it prints.
  Json call(Words words, int code) const {
    SCOPED_TRACE(fmt::format("repro {}", fmt::join(words, " ")));
    words.emplace_back("--json");
    const test::Ended ended = wait(spawn_program("repro", words, "json"), "json");
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    const Json json = Json::parse(ended.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json.is_object()) << ended.out << ended.err;
    return json;
  }
  // Checks that its text for people contains `part`.
  void tell(const Words& words, int code, const std::string& part) const {
    SCOPED_TRACE(fmt::format("repro {}", fmt::join(words, " ")));
    const test::Ended told = wait(spawn_program("repro", words, "words"), "words");
    EXPECT_EQ(told.code, code) << told.out << told.err;
    EXPECT_NE(told.out.find(part), std::string::npos) << told.out << told.err;
    EXPECT_FALSE(Json::accept(told.out)) << told.out;
  }
  // Checks that it prints nothing on stdout and the reason on stderr.
  void refuse(Words words, int code) const {
    SCOPED_TRACE(fmt::format("repro {}", fmt::join(words, " ")));
    words.emplace_back("--json");
    const test::Ended ended = wait(spawn_program("repro", words, "json"), "json");
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err, "");
  }
};

TEST_F(Tour, WhatRunsLeaveBehind) {
  train("a");
  train("c", {"--set", "optimizer.lr=0.04"});
  const std::string a = path("a"), c = path("c"), none = path("none");

  EXPECT_EQ(call({"diff", a, a}, 0).at("verdict"), "equal");
  EXPECT_EQ(call({"diff", a, c}, 1).at("verdict"), "explained");
  tell({"diff", a, c}, 1, "likely cause: optimizer.lr is 0.05 and 0.04");
  refuse({"diff", a, none}, 2);
  refuse({"diff", a}, 2);

  EXPECT_EQ(call({"env", a}, 0).at("workers").size(), 1u);
  EXPECT_EQ(call({"env", a, a}, 0).at("differences"), Json::array());
  tell({"env", a}, 0, "worker 1 came");
  refuse({"env", none}, 2);

  EXPECT_EQ(call({"digest", a}, 0).at("digests").size(), 3u);
  EXPECT_TRUE(call({"digest", a + "/checkpoints/step-8", "--tensors"}, 0).at("digests")[0].contains("tensors"));
  EXPECT_EQ(call({"digest", a + "/ledger.jsonl"}, 0).at("digests")[0].at("what"), "file");
  tell({"digest", a}, 0, "state after step 24");
  refuse({"digest", none}, 2);

  const std::string page = path("page.html");
  EXPECT_EQ(call({"report", a, "--html", page, "--against", c}, 0).at("verdict").at("verdict"), "explained");
  EXPECT_NE(read_file(page).find("</html>"), std::string::npos);
  tell({"report", a, "--html", page}, 0, page);
  refuse({"report", none}, 2);
}

TEST_F(Tour, StepsDoneAgain) {
  train("a", {"--steps", "12"});
  const std::string a = path("a");
  EXPECT_EQ(call({"verify", a, "--steps", "2", "--threads", "1"}, 0).at("to"), 10);
  tell({"verify", a, "--threads", "1"}, 0, "steps 9 to 12 done again: every line of the ledger is the same");
  refuse({"verify", a, "--from", "7"}, 2);
  refuse({"verify", path("none")}, 2);

  const std::string trace = path("trace"), saved = path("saved");
  const Json traced = call({"trace", a, "--step", "3", "--out", trace, "--tensors", "0", "--save", saved}, 0);
  EXPECT_GT(traced.at("ops"), 10);
  EXPECT_EQ(traced.at("step"), 3);
  EXPECT_TRUE(call({"replay", saved}, 0).at("sides").at("a").at("equal")) << "a single side will do";
  tell({"trace", a, "--step", "3", "--out", trace}, 0, "ops of step 3, done again from step 0");
  refuse({"trace", a, "--step", "3", "--out", trace, "--tensors", "0"}, 2);
  refuse({"trace", a, "--step", "99", "--out", trace}, 3);
}

TEST_F(Tour, DownToTheOp) {
  train("a", {"--steps", "4"});
  train("d", {"--steps", "4"}, "faulty/");
  const std::string a = path("a"), d = path("d"), op = path("op.safetensors");
  const Json differences = call({"env", a, d}, 1).at("differences");
  EXPECT_TRUE(std::any_of(differences.begin(), differences.end(), [](const Json& x) { return x["key"] == "program"; }))
      << differences;
  const Json found = call({"bisect", a, d, "--out", op}, 1);
  EXPECT_EQ(found.at("verdict"), "op");
  EXPECT_EQ(found.at("reproducer"), op);
  tell({"bisect", a, d, "--out", op}, 1, fmt::format("repro replay {} runs it alone", op));
  refuse({"bisect", a, path("none")}, 2);

  EXPECT_TRUE(call({"replay", op}, 0).at("sides").at("a").at("equal"));
  tell({"replay", op}, 0, "a: the same bits\nb: other bits");
  refuse({"replay", path("none")}, 3);
  refuse({"replay", op, "--isa", "abacus"}, 2);
}

TEST_F(Tour, OfWhatIsDamaged) {
  train("a", {"--steps", "12"});
  const std::string a = path("a"), b = path("b");
  fs::copy(a, b, fs::copy_options::recursive);
  std::string text = ledger("a");
  text[text.rfind("\"sum\"") - 5] ^= 1;
  replace_file(a + "/ledger.jsonl", text);
  EXPECT_EQ(call({"diff", a, b}, 3).at("damage").at("a").size(), 1u);
  tell({"diff", a, b}, 3, "A: ledger.jsonl, line 13");
  EXPECT_EQ(call({"bisect", a, b}, 3).at("verdict"), "equal");
  EXPECT_NE(call({"verify", a, "--threads", "1"}, 1).at("reason"), "");
  folder_.write("a/checkpoints/step-8/manifest.json", "{");
  EXPECT_TRUE(call({"digest", a}, 3).at("digests")[0].contains("error"));
}

TEST_F(Tour, AConfigurationThatIsNotTheLedgersIsNotVerified) {
  train("a", {"--steps", "2"});
  std::string text = read_file(path("a") + "/config.toml");
  text.replace(text.find("lr = 0.05"), 9, "lr = 0.06");
  replace_file(path("a") + "/config.toml", text);
  refuse({"verify", path("a")}, 2);
}

// Starts a worker that ignores signals, separately from the program that starts it.
constexpr const char* kStartsAWorker =
    "setsid sh -c 'trap \"\" TERM; echo $$ > worker.new; mv worker.new worker; while :; do sleep 0.1; done' & ";

// The worker is found and killed with its program.
TEST(Subprocess, EndsWhatItsProgramsHaveStarted) {
  Subprocess subprocess(std::chrono::milliseconds(200));
  const fs::path told = subprocess.path() / "worker";
  const std::jthread user([&](const std::stop_token& over) {
    while (!fs::exists(told) && !over.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!over.stop_requested()) ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(test::message_of<Failure>([&] {
              (void)subprocess.run(
                  "/bin/sh", {"-c", fmt::format("cd {}; {} sleep 1000", subprocess.path().string(), kStartsAWorker)});
            }),
            "interrupted");
  const pid_t worker = std::stoi(read_file(told));
  EXPECT_EQ(::kill(worker, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

// The kernel may kill a coordinator when memory runs out: its workers would start another one.
TEST(Subprocess, EndsWhatIsLeftOfAProgramThatWasKilled) {
  Subprocess subprocess;
  const Subprocess::Ended ended =
      subprocess.run("/bin/sh", {"-c", fmt::format("cd {}; {} until test -e worker; do sleep 0.01; done; "
                                                   "kill -9 $$",
                                                   subprocess.path().string(), kStartsAWorker)});
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  const pid_t worker = std::stoi(read_file(subprocess.path() / "worker"));
  const int there = ::kill(worker, SIGKILL);
  EXPECT_EQ(there, -1);
  EXPECT_EQ(errno, ESRCH);
}

// On Ctrl-C, whether or not the program ends by itself.
TEST(Subprocess, GoesWithEverythingInItWhenInterrupted) {
  for (const char* script :
       {"echo > started; exec sleep 1000", "trap '' TERM; echo > started; while :; do sleep 0.1; done"}) {
    SCOPED_TRACE(script);
    fs::path folder;
    std::string said;
    {
      Subprocess subprocess(std::chrono::milliseconds(200));
      folder = subprocess.path();
      const std::jthread user([&folder](const std::stop_token& over) {
        while (!fs::exists(folder / "started") && !over.stop_requested())
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (!over.stop_requested()) ::kill(::getpid(), SIGINT);
      });
      said = test::message_of<Failure>([&] {
        (void)subprocess.run("/bin/sh", {"-c", fmt::format("cd {}; {}", folder.string(), script)});
      });
    }
    EXPECT_EQ(said, "interrupted");
    EXPECT_FALSE(fs::exists(folder)) << folder;
  }
}

}  // namespace
}  // namespace elinvar
