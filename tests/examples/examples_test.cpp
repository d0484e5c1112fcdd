// Runs the programs of examples/ as their comments say.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tensor/base/file.h"
#include "tests/jobs/train_process.h"
#include "tests/places.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;

class Examples : public testing::Test, protected test::TrainRuns {
 protected:
  const std::string config_ = std::string(ELINVAR_SOURCE_DIR) + "/examples/elastic_job.toml";

  Ended program(const std::string& name, const std::vector<std::string>& arguments = {}) const {
    return wait(spawn_program(name, arguments, name), name);
  }
  pid_t start(const std::string& run, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"run", config_, "--run-dir", folder_ / run, "--threads", "1"});
    return spawn_program("elastic_job", more, run);
  }
  void train(const std::string& run, const std::vector<std::string>& more = {}) const {
    const Ended ended = wait(start(run, more), run);
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  std::string events(const std::string& run) const { return read_file(folder_ / run / "events.jsonl"); }
  // Checks that the job refuses to start with exit code 2 and this message.
  void expect_usage(const std::vector<std::string>& settings, const std::string& message) const {
    std::vector<std::string> more;
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    const Ended ended = wait(start("wrong", more), "wrong");
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_EQ(ended.err.find("elastic_job: " + message), 0u) << ended.err;
    EXPECT_FALSE(fs::exists(folder_ / "wrong"));
  }
};

TEST_F(Examples, ATapeFitsTheLine) {
  const Ended ended = program("tape");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "y = 3.000 x -1.000\n");
}

TEST_F(Examples, AnOwnNetworkLearnsOwnData) {
  const Ended ended = program("own_network");
  EXPECT_EQ(ended.code, 0);
  int right = 0;
  ASSERT_EQ(std::sscanf(ended.last_line().c_str(), "%d of 500 new points are right", &right), 1) << ended.out;
  EXPECT_GT(right, 450);
}

TEST_F(Examples, ANetworkThatIsNoListOfSegmentsIsNotAPipeline) {
  const Ended ended = wait(start("wrong", {"--arrangement", "dp=1,pp=2"}), "wrong");
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_NE(ended.err.find("--arrangement pp=2 needs a network that is a list of segments (nn/segments.h), which waves "
                           "is not"),
            std::string::npos)
      << ended.err;
  EXPECT_FALSE(fs::exists(folder_ / "wrong"));
}

// With custom data, network and optimiser, one worker, and three of which one dies, make the same ledger.
TEST_F(Examples, AnElasticJobDoesNotDependOnItsWorkers) {
  train("one");
  train("three", {"--workers", "3", "--chaos", "kill:worker=1,step=100"});
  EXPECT_NE(events("three").find("\"event\":\"lost\""), std::string::npos) << events("three");
  EXPECT_EQ(recorded("one"), 300);
  const auto environment = nlohmann::json::parse(read_file(folder_ / "one" / "environment.json"));
  EXPECT_EQ(environment.at("command").at(1), "run") << environment;
  EXPECT_NE(events("three").find("\"join\",\"tcp://"), std::string::npos) << events("three");
  const Ended score = program("elastic_job", {"eval", folder_ / "three"});
  EXPECT_EQ(score.out.find("validation step=300 loss=0.17"), 0u) << score.out << score.err;
  EXPECT_EQ(ledger("three"), ledger("one"));
  const Ended same = program("compare_ledgers", {folder_ / "one", folder_ / "three"});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.last_line(), "equal in all steps that both have");

  train("other", {"--set", "optimizer.momentum=0.8"});
  const Ended parted = program("compare_ledgers", {folder_ / "one", folder_ / "other"});
  EXPECT_EQ(parted.code, 1) << parted.err;
  EXPECT_EQ(parted.last_line(), "they part at step 3, first in: loss");
  EXPECT_EQ(program("compare_ledgers", {folder_ / "one"}).code, 2);
  EXPECT_EQ(program("compare_ledgers", {folder_ / "one", folder_ / "absent"}).code, 3);
}

// The program starts itself: the coordinator starts workers, and a worker a coordinator.
TEST_F(Examples, AnElasticJobOutlivesItsCoordinator) {
  const std::vector<std::string> steps = {"--steps", "4000"};
  train("one", steps);
  const pid_t job = start("killed", {"--steps", "4000", "--workers", "2"});
  reach("killed", 300);
  ::kill(job, SIGKILL);
  EXPECT_EQ(wait(job, "killed").code, 128 + SIGKILL);
  EXPECT_EQ(remaining_children(std::chrono::seconds(120)), "");
  EXPECT_EQ(ledger("killed"), ledger("one"));
  EXPECT_TRUE(fs::exists(folder_ / "killed" / "result.json"));
}

TEST_F(Examples, AnElasticJobStopsAndResumes) {
  train("whole", {"--steps", "5000"});
  train("parts", {"--steps", "5000", "--until", "100"});
  EXPECT_LT(recorded("parts"), 5000);
  train("parts", {"--steps", "5000", "--resume", "--workers", "2"});
  EXPECT_EQ(ledger("parts"), ledger("whole"));
  const Ended other = wait(start("parts", {"--steps", "5000", "--resume", "--set", "data.fields=5"}), "parts");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("data.fields changed from 4 to 5"), std::string::npos) << other.err;
}

// The state of the program's own optimiser cannot be sharded; that of another optimiser can, for the program's network.
TEST_F(Examples, AnOptimizerOfItsOwnIsNotSharded) {
  const std::vector<std::string> sharded = {"--workers", "2", "--min-workers", "2", "--arrangement", "zero=1"};
  const Ended own = wait(start("own", sharded), "own");
  EXPECT_EQ(own.code, 2);
  EXPECT_NE(own.err.find("optimizer.kind = 'heavy_ball' is a kind that the program registers"), std::string::npos)
      << own.err;
  EXPECT_FALSE(fs::exists(folder_ / "own"));
  std::vector<std::string> more = {"--set", "optimizer.kind=adamw"};
  train("one", more);
  more.insert(more.end(), sharded.begin(), sharded.end());
  train("two", more);
  EXPECT_EQ(ledger("two"), ledger("one"));
}

TEST_F(Examples, WorkersWithOtherSettingsOrAnotherProgramAreRefused) {
  const pid_t job = start("run", {"--steps", "1000000"});
  reach("run", 10);
  const auto join = [&](const std::string& program, std::vector<std::string> more) {
    more.insert(more.begin(), {"join", folder_ / "run", "--threads", "1"});
    return wait(spawn_program(program, more, "join"), "join");
  };
  const Ended data = join("elastic_job", {"--set", "data.fields=5"});
  EXPECT_EQ(data.code, 3);
  EXPECT_NE(data.err.find("its configuration is another one"), std::string::npos) << data.err;
  const Ended optimizer = join("elastic_job", {"--set", "optimizer.momentum=0.8"});
  EXPECT_EQ(optimizer.code, 3);
  EXPECT_NE(optimizer.err.find("its configuration is another one"), std::string::npos) << optimizer.err;
  const Ended train = join("train", {});
  EXPECT_EQ(train.code, 2);
  EXPECT_NE(train.err.find("optimizer.kind does not know 'heavy_ball'"), std::string::npos) << train.err;
  EXPECT_EQ(program("elastic_job", {"ctl", folder_ / "run", "stop"}).code, 0);
  EXPECT_EQ(wait(job, "run").code, 0);
}

TEST_F(Examples, SettingsOfOwnKindsAreChecked) {
  expect_usage({"data.kind=chessbord"},
               "--set data.kind: data.kind does not know 'chessbord'; did you mean 'chessboard'?");
  expect_usage({"data.feilds=3"},
               "--set data.feilds: data.feilds is no setting of 'chessboard'; did you mean 'fields'?");
  expect_usage({"data.fields=1"}, "--set data.fields: data.fields must lie between 2 and 100, got 1");
  expect_usage({"data.fields=x"}, "--set data.fields: data.fields must be an integer, got a string");
  expect_usage({"data.prefetch=-1"}, "--set data.prefetch: data.prefetch must lie between 0 and 4096, got -1");
  expect_usage({"model.kind=wavs"}, "--set model.kind: model.kind does not know 'wavs'; did you mean 'waves'?");
  expect_usage({"model.frequency=-1"}, "--set model.frequency: model.frequency must lie between 0 and 1000, got -1");
  expect_usage({"optimizer.kind=heavy"}, "--set optimizer.kind: optimizer.kind does not know 'heavy'");
  expect_usage({"optimizer.momentum=2"},
               "--set optimizer.momentum: optimizer.momentum must lie between 0 and 1, got 2");
  expect_usage({"optimizer.nesterov=true"},
               "--set optimizer.nesterov: optimizer.nesterov is no setting of 'heavy_ball'");
}

TEST_F(Examples, WrongCallsSayWhatThereIs) {
  const Ended none = program("elastic_job");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("subcommand is required"), std::string::npos) << none.err;
  const Ended walk = program("elastic_job", {"walk"});
  EXPECT_EQ(walk.code, 2);
  EXPECT_EQ(
      walk.err,
      "elastic_job: there is no command 'walk'; valid are run, resume, join, ctl, eval. elastic_job --help tells what "
      "they do\n");
}

}  // namespace
}  // namespace elinvar
