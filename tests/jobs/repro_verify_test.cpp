// repro verify: repeats real runs from their checkpoints with other workers, and detects tampering.
#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "elastic/ledger/sealed_line.h"
#include "elastic/run/run_record.h"
#include "tensor/base/file.h"
#include "tests/jobs/repro_runs.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Verify : public test::ReproRuns {
 protected:
  Json verify(const std::string& name, std::vector<std::string> more, int code) const {
    more.insert(more.begin(), {"verify", path(name), "--json"});
    if (std::find(more.begin(), more.end(), "--threads") == more.end()) more.insert(more.end(), {"--threads", "1"});
    return repro(more, code);
  }
  // Returns whether the condition holds within a minute.
  static bool comes(const std::function<bool()>& there) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!there()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }
  // Replaces a text in the line of a step; with `sealed_again`, the checksum is corrected.
  void change(const std::string& name, int64_t step, bool sealed_again) const {
    std::vector<std::string> lines = test::lines_of(ledger(name));
    std::string& line = lines.at(static_cast<size_t>(step));  // index 0 is the header
    const size_t loss = line.find("\"loss\":\"") + 8;
    line[loss + 15] = line[loss + 15] == '3' ? '4' : '3';
    if (sealed_again) line = sealed(line.substr(0, line.rfind(",\"sum\"")) + "}");
    std::string text;
    for (const std::string& each : lines) text += each + "\n";
    replace_file(path(name) + "/ledger.jsonl", text);
  }
};

TEST_F(Verify, AnyPartOfARunIsDoneAgainWithAnyWorkers) {
  train("run", {"--workers", "2"});
  const std::string before = ledger("run");
  Json answer = verify("run", {}, 0);
  EXPECT_TRUE(answer.at("equal"));
  EXPECT_EQ(answer.at("from"), 16);
  EXPECT_EQ(answer.at("to"), kSteps);
  answer = verify("run", {"--from", "8", "--workers", "3"}, 0);
  EXPECT_EQ(answer.at("from"), 8);
  answer = verify("run", {"--from", "8", "--steps", std::to_string(INT64_MAX)}, 0);
  EXPECT_EQ(answer.at("to"), kSteps);
  answer = verify("run", {"--from", "0", "--steps", "5", "--workers", "2", "--isa", "scalar"}, 0);
  EXPECT_EQ(answer.at("to"), 5);
  EXPECT_EQ(ledger("run"), before);
  repro({"verify", path("run"), "--from", "7"}, 2);
  repro({"verify", path("run"), "--arrangement", "dp=2,pp=2", "--workers", "3"}, 2);
  repro({"verify", path("run"), "--arrangement", "zero=9"}, 2);
}

TEST_F(Verify, AChangedLedgerIsFound) {
  train("run");
  change("run", 19, true);
  Json answer = verify("run", {}, 1);
  EXPECT_FALSE(answer.at("equal"));
  EXPECT_EQ(answer.at("step"), 19);
  EXPECT_EQ(answer.at("fields"), Json({"loss"}));
  EXPECT_TRUE(verify("run", {"--from", "8", "--steps", "4"}, 0).at("equal")) << "what is before it is right";
  change("run", 12, false);
  answer = verify("run", {}, 1);
  EXPECT_NE(answer.at("reason").get<std::string>().find("ledger.jsonl, line 13"), std::string::npos) << answer;
}

TEST_F(Verify, AChangedCheckpointIsFound) {
  train("run");
  fs::path part;
  for (const auto& entry : fs::directory_iterator(path("run") + "/checkpoints/step-16"))
    if (entry.path().extension() == ".safetensors") part = entry.path();
  std::string bytes = read_file(part);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  replace_file(part, bytes);
  const Json answer = verify("run", {}, 1);
  EXPECT_NE(answer.at("reason").get<std::string>().find("checksum"), std::string::npos) << answer;
  EXPECT_TRUE(verify("run", {"--from", "8"}, 0).at("equal"));
}

// It runs until a worker has joined and another has left, however long that takes.
TEST_F(Verify, ARunWhoseBatchChangesIsDoneAgainExactly) {
  folder_.write("job.toml", test::text_of({.steps = 1000000,
                                           .batch_size = 3,
                                           .virtual_ranks = 3,
                                           .checkpoint_every = 400,
                                           .samples = 22,
                                           .image_size = 4,
                                           .channels = 4,
                                           .run = "scaling = \"adaptive\"\nbatch_max = 12\nramp_steps = 600\n",
                                           .data = "threads = 1\n"}));
  const pid_t run = spawn({"run", path("job.toml"), "--run-dir", path("run"), "--threads", "1", "--workers", "2",
                           "--chaos", "join:step=20"},
                          "run");
  reach("run", 20);
  const auto batch_changes = [&] {
    std::set<int64_t> batches;
    const RunRecord record(path("run"));
    for (const auto& [step, line] : record.lines()) batches.insert(line.batch_size.value_or(0));
    return batches.size() >= 2;
  };
  ASSERT_TRUE(comes(batch_changes));
  EXPECT_EQ(wait(spawn({"ctl", path("run"), "drain", "1"}, "ctl"), "ctl").code, 0);
  ASSERT_TRUE(comes([&] { return read_file(path("run") + "/events.jsonl").find("\"left\"") != std::string::npos; }));
  EXPECT_EQ(wait(spawn({"ctl", path("run"), "stop"}, "ctl"), "ctl").code, 0);
  ASSERT_EQ(wait(run, "run").code, 0);
  EXPECT_TRUE(verify("run", {"--from", "0", "--workers", "1"}, 0).at("equal"));
  EXPECT_TRUE(verify("run", {"--workers", "3"}, 0).at("equal"));
}

}  // namespace
}  // namespace elinvar
