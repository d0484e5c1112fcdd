// `train run --dry-run` and `--arrangement auto` on small jobs, and on one that no machine of the tests could train.
#include <sys/resource.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tensor/base/file.h"
#include "tests/jobs/table_job.h"
#include "tests/jobs/train_command.h"
#include "tests/places.h"
#include "tests/support/lines.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::TrainCommand;
using Json = nlohmann::json;

// 2 billion parameters, of which AdamW's state takes 16 GB.
constexpr const char* kLarge = R"([run]
steps = 8
batch_size = 64
virtual_ranks = 64

[data]
kind = "synthetic_text"
size = 3000
context = 64

[optimizer]
kind = "adamw"
lr = 0.01

[model]
kind = "gpt"
layers = 40
heads = 16
channels = 2048
virtual_shards = 8
)";

class DryRun : public TrainCommand {
 protected:
  Ended dry(const std::string& config, std::vector<std::string> more) const {
    more.insert(more.begin(), "--dry-run");
    return run(config, "run", std::move(more));
  }
};

TEST_F(DryRun, PrintsArrangementsAndTrainsNothing) {
  const Ended ended = dry("text.toml", {"--workers", "2", "--memory", "80GB"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("dp=2,zero=1 --copies 2"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("bound by"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.err, "");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(DryRun, JsonHasAllOfThem) {
  const Ended ended = dry("images.toml", {"--workers", "4", "--memory", "1TB", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json json = Json::parse(ended.out);
  EXPECT_EQ(json.at("workers"), 4);
  for (const Json& e : json.at("arrangements")) {
    EXPECT_TRUE(e.at("fits"));
    const int dp = e.at("dp"), replica = e.at("tp").get<int>() * e.at("pp").get<int>();
    if (dp > 0) EXPECT_EQ(dp * replica, 4);
    else EXPECT_EQ(replica, 3) << "of three workers and of one";
    EXPECT_GT(e.at("peak_bytes").get<int64_t>(), 0);
  }
}

TEST_F(DryRun, ExitCode1IfNoneFits) {
  const Ended ended = dry("text.toml", {"--workers", "2", "--memory", "1MB"});
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.out.find("\n0 of "), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("needs the least memory"), std::string::npos) << ended.out;
}

TEST_F(DryRun, WrongUsageHasExitCode2) {
  EXPECT_EQ(dry("text.toml", {"--memory", "many"}).code, 2);
  EXPECT_EQ(dry("text.toml", {"--bandwidth", "-1"}).code, 2);
  EXPECT_EQ(dry("text.toml", {"--latency", "3GB"}).code, 2);
  EXPECT_EQ(dry("text.toml", {"--workers", "0"}).code, 2);
  EXPECT_EQ(dry("text.toml", {"--arrangement", "zero=1"}).code, 2);
  EXPECT_EQ(run("text.toml", "run", {"--json"}).code, 2);
}

TEST_F(DryRun, AutoTrainsWithTheFastestThatFits) {
  const Ended alone = run("text.toml", "alone");
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Ended ended = run("text.toml", "run", {"--workers", "2", "--arrangement", "auto", "--memory", "80GB"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out.find("arrangement dp="), 0u) << ended.out;
  EXPECT_EQ(ledger("run"), ledger("alone"));
}

// Where values between stages are smaller than gradients and links are slow, two workers are stages.
TEST_F(DryRun, AutoChoosesAgainWhenAWorkerJoins) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "600", "--set", "model.channels=128"});
    return more;
  };
  const Ended alone = run("text.toml", "alone", with({}));
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Ended ended = run("text.toml", "run",
                          with({"--arrangement", "auto", "--memory", "80GB", "--bandwidth", "1MB", "--latency", "1us",
                                "--chaos", "join:step=2"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), ledger("alone"));
  std::vector<std::string> reasons;
  for (const std::string& line : test::lines_of(read_file(folder_ / "run/events.jsonl")))
    if (const Json event = Json::parse(line); event.at("event") == "generation") reasons.push_back(event.at("reason"));
  EXPECT_TRUE(std::ranges::any_of(reasons, [](const std::string& reason) {
    return reason.starts_with("arrangement pp=2") && reason.find("a step with 2 workers") != reason.npos;
  })) << testing::PrintToString(reasons);
}

// The table and Adam's two moments of it have 77 MB, which two workers share.
TEST_F(DryRun, SparseTablesHaveEachStageOfZero) {
  folder_.write("table.toml", test::sparse_table_job("380000, 7, 20000"));
  const Ended ended =
      dry("table.toml", {"--workers", "2", "--memory", "80GB", "--json", "--set", "run.checkpoint_every=0"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::map<int, double> peaks;
  const Json json = Json::parse(ended.out);
  for (const Json& e : json.at("arrangements"))
    if (e.at("pp") == 1 && (e.at("zero") == 0 || e.at("copies") == 1)) peaks[e.at("zero")] = e.at("peak_bytes");
  ASSERT_EQ(peaks.size(), 4u);
  // Workers differ by a bucket of 2^18 elements, which is 1 MB, and by its moments and copies.
  EXPECT_NEAR(1e-6 * (peaks[0] - peaks[1]), 25.6, 4) << "half of the moments, which buckets of 2^18 elements divide";
  EXPECT_NEAR(1e-6 * (peaks[1] - peaks[3]), 12.8, 4) << "half of the table";
  const std::string between = fmt::format("{}MB", std::lround(1e-6 * (peaks[1] + peaks[3]) / 2));
  const Ended chosen = run("table.toml", "run",
                           {"--workers", "2", "--arrangement", "auto", "--copies", "1", "--memory", between, "--set",
                            "run.checkpoint_every=0"});
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_NE(chosen.out.find("zero=3"), std::string::npos) << chosen.out;
}

TEST_F(DryRun, AutoNamesTheLeastMemoryIfNoneFits) {
  const Ended ended = run("text.toml", "run", {"--workers", "2", "--arrangement", "auto", "--memory", "1MB"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("--arrangement auto: none fits workers of 0.001 GB"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(DryRun, OffloadedStateIsNotInMemory) {
  std::string medium = kLarge;  // AdamW's state takes 100 MB
  medium.replace(medium.find("layers = 40"), 11, "layers = 4");
  medium.replace(medium.find("channels = 2048"), 15, "channels = 512");
  folder_.write("medium.toml", medium);
  const auto peak = [&](const std::string& offload) {
    const Ended ended = dry("medium.toml", {"--memory", "80GB", "--json", "--offload", offload});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out).at("arrangements").at(0).at("peak_bytes").get<double>();
  };
  EXPECT_NEAR(1e-6 * (peak("none") - peak("file")), 100, 10);
  EXPECT_EQ(dry("medium.toml", {"--memory", "80GB", "--offload", "host"}).code, 2);
}

TEST_F(DryRun, LinksAreMeasuredUnlessTheyAreGiven) {
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--workers", "2", "--memory", "80GB", "--json"});
    const Ended ended = dry("text.toml", std::move(more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out);
  };
  const Json measured = of({}), given = of({"--latency", "7ms", "--bandwidth", "3GB"});
  EXPECT_GT(measured.at("latency"), 0);
  EXPECT_LT(measured.at("latency"), 1);
  EXPECT_GT(measured.at("bandwidth"), 1e6);
  EXPECT_EQ(given.at("latency"), 7e-3);
  EXPECT_EQ(given.at("bandwidth"), 3e9);
  const Ended text = dry("text.toml", {"--workers", "2", "--memory", "80GB", "--latency", "7ms"});
  EXPECT_NE(text.out.find("7 ms a message (given), "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" a second each way (measured)"), std::string::npos) << text.out;
}

TEST_F(DryRun, NeedsTheMemoryOfASegmentAlone) {
  folder_.write("large.toml", kLarge);
  const Ended ended = dry("large.toml", {"--workers", "8", "--memory", "80GB", "--threads", "2", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json json = Json::parse(ended.out);
  EXPECT_GT(json.at("parameters"), 2'000'000'000);
  const auto fits = [&](int tp, int pp, int zero) {
    for (const Json& e : json.at("arrangements"))
      if (e.at("tp") == tp && e.at("pp") == pp && e.at("zero") == zero && e.at("copies") == 2)
        return e.at("fits").get<bool>();
    return false;
  };
  EXPECT_FALSE(fits(1, 1, 0)) << "gradients of eight virtual ranks, sums, and parts of checkpoints";
  EXPECT_TRUE(fits(1, 1, 3));
  EXPECT_TRUE(fits(2, 1, 2));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);  // the largest of those so far
  EXPECT_LT(children.ru_maxrss, 3 << 20) << "kB, where the parameters have 8 GB";
#endif
}

}  // namespace
}  // namespace elinvar
