// Every command of repro as a program calls it: one JSON object with --json and nothing else, words without, and the
// same exit code either way.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "elastic/checkpoint.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "tests/repro_runs.h"
#include "tools/repro/workplace.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Tour : public test::ReproRuns {
 protected:
  // The object that it prints.
  Json call(const Words& words, int code) const {
    SCOPED_TRACE(fmt::format("repro {}", fmt::join(words, " ")));
    const test::Ended told = wait(spawn_program("repro", words, "words"), "words");
    EXPECT_EQ(told.code, code) << told.out << told.err;
    EXPECT_FALSE(told.out.empty()) << told.err;
    EXPECT_FALSE(Json::accept(told.out)) << told.out;
    Words with_json = words;
    with_json.emplace_back("--json");
    const test::Ended ended = wait(spawn_program("repro", with_json, "json"), "json");
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    const Json json = Json::parse(ended.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json.is_object()) << ended.out << ended.err;
    return json;
  }
  // Nothing on stdout, and on stderr why.
  void refuse(Words words, int code) const {
    SCOPED_TRACE(fmt::format("repro {}", fmt::join(words, " ")));
    words.emplace_back("--json");
    const test::Ended ended = wait(spawn_program("repro", words, "json"), "json");
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err, "");
  }
};

TEST_F(Tour, EveryCommandAnswersPeopleAndPrograms) {
  train("a");
  train("b", {"--workers", "2"});
  train("c", {"--set", "optimizer.lr=0.04"});
  train("d", {}, "faulty/");
  const std::string a = path("a"), b = path("b"), c = path("c"), d = path("d"), none = path("none");

  EXPECT_EQ(call({"diff", a, b}, 0).at("verdict"), "equal");
  EXPECT_EQ(call({"diff", a, c}, 1).at("verdict"), "explained");
  refuse({"diff", a, none}, 2);
  refuse({"diff", a}, 2);

  EXPECT_EQ(call({"env", a}, 0).at("workers").size(), 1u);
  EXPECT_EQ(call({"env", a, a}, 0).at("differences"), Json::array());
  const Json differences = call({"env", a, d}, 1).at("differences");
  EXPECT_TRUE(std::any_of(differences.begin(), differences.end(), [](const Json& x) { return x["key"] == "program"; }))
      << differences;
  refuse({"env", none}, 2);

  EXPECT_EQ(call({"digest", a}, 0).at("digests").size(), 3u);
  EXPECT_TRUE(call({"digest", a + "/checkpoints/step-8", "--tensors"}, 0).at("digests")[0].contains("tensors"));
  EXPECT_EQ(call({"digest", a + "/ledger.jsonl"}, 0).at("digests")[0].at("what"), "file");
  refuse({"digest", none}, 2);

  EXPECT_EQ(call({"verify", a, "--steps", "2", "--threads", "1"}, 0).at("to"), 18);
  refuse({"verify", a, "--from", "7"}, 2);
  refuse({"verify", none}, 2);

  const std::string op = path("op.safetensors");
  EXPECT_EQ(call({"bisect", a, b, "--out", op}, 0).at("verdict"), "equal");
  EXPECT_EQ(call({"bisect", a, c, "--out", op}, 1).at("verdict"), "configuration");
  const Json found = call({"bisect", a, d, "--out", op}, 1);
  EXPECT_EQ(found.at("verdict"), "op");
  EXPECT_EQ(found.at("reproducer"), op);
  refuse({"bisect", a, none}, 2);

  EXPECT_TRUE(call({"replay", op}, 0).at("sides").at("a").at("equal"));
  refuse({"replay", none}, 3);
  refuse({"replay", op, "--isa", "abacus"}, 2);

  const Json trace =
      call({"trace", a, "--step", "3", "--out", path("trace"), "--tensors", "0", "--save", path("saved")}, 0);
  EXPECT_GT(trace.at("ops"), 10);
  EXPECT_EQ(trace.at("step"), 3);
  EXPECT_TRUE(fs::exists(path("saved")));
  EXPECT_TRUE(call({"replay", path("saved")}, 0).at("sides").at("a").at("equal")) << "a single side will do";
  refuse({"trace", a, "--step", "3", "--out", path("trace"), "--tensors", "0"}, 2);
  refuse({"trace", a, "--step", "99", "--out", path("trace")}, 3);

  EXPECT_EQ(call({"report", a, "--html", path("page.html"), "--against", c}, 0).at("verdict").at("verdict"),
            "explained");
  EXPECT_NE(read_file(path("page.html")).find("</html>"), std::string::npos);
  refuse({"report", none}, 2);

  // Of what is damaged.
  std::string text = ledger("a");
  text[text.rfind("\"sum\"") - 5] ^= 1;
  replace_file(a + "/ledger.jsonl", text);
  EXPECT_EQ(call({"diff", a, b}, 3).at("damage").at("a").size(), 1u);
  EXPECT_EQ(call({"bisect", a, b}, 3).at("verdict"), "equal");
  EXPECT_FALSE(call({"verify", b, "--from", "8", "--steps", "1", "--threads", "1"}, 0).contains("reason"));
  EXPECT_NE(call({"verify", a, "--threads", "1"}, 1).at("reason"), "");
  folder_.write("a/checkpoints/step-8/manifest.json", "{");
  EXPECT_TRUE(call({"digest", a}, 3).at("digests")[0].contains("error"));
}

TEST(Workplace, GoesWithEverythingInItWhenInterrupted) {
  const test::TemporaryFolder folder;
  const std::string told = folder / "told", written = folder / "written";
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      Workplace place;
      replace_file(written, place.path().string());
      fs::rename(written, told);
      (void)place.run("/bin/sleep", {"1000"});
    } catch (const Failure& failure) {
      code = std::string(failure.what()) == "interrupted" ? 7 : 8;
    }
    ::_exit(code);
  }
  while (!fs::exists(told)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string place = read_file(told);
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_FALSE(fs::exists(place)) << place;
}

}  // namespace
}  // namespace elinvar
