// Audits of real jobs: an injected bit flip in a worker is found before an update uses it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "tests/support/environment.h"
#include "elastic/audit/audit.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kSeed = 5;  // the tiny job's seed
constexpr int kVranks = 3;

class AuditedJob : public test::TinyJob {
 protected:
  static std::vector<std::string> options(int workers, int64_t every, const std::string& chaos) {
    std::vector<std::string> options = {"--workers", std::to_string(workers), "--set",
                                        fmt::format("run.audit_every={}", every)};
    if (!chaos.empty()) options.insert(options.end(), {"--chaos", chaos});
    return options;
  }
  // Returns the first update from `from` on whose audited rank gradient is that of `vrank` and has samples.
  static int64_t update_with(int vrank, int64_t from, int64_t every = 1) {
    const AuditOptions audit{.every = every, .seed = kSeed};
    int64_t update = from;
    while (!audited(audit, update - 1) || audited_vrank(audit, update - 1, kVranks) != vrank || update % 8 == 0)
      ++update;
    return update;
  }
  std::vector<Json> verdicts(const std::string& name) const { return events(name, "verdict"); }
  // Returns the workers that were evicted, and the update.
  std::vector<std::pair<int, int64_t>> guilty(const std::string& name) const {
    std::vector<std::pair<int, int64_t>> guilty;
    for (const Json& found : verdicts(name))
      if (found.at("verdict") == "guilty")
        for (const Json& worker : found.at("workers")) guilty.emplace_back(worker.get<int>(), found.at("step"));
    return guilty;
  }
};

using Guilty = std::vector<std::pair<int, int64_t>>;

TEST_F(AuditedJob, AWrongGradientIsFoundAndItsWorkerEvicted) {
  const int64_t update = update_with(1, 30);  // in the second of three workers
  const test::Ended ended =
      wait(start("run", options(3, 1, fmt::format("flip:worker=2,step={},bit=27", update))), "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(guilty("run"), (Guilty{{2, update}}));
  ASSERT_EQ(verdicts("run").size(), 2u);
  EXPECT_EQ(verdicts("run")[0].at("verdict"), "all compute it again");
  EXPECT_NE(ended.out.find(fmt::format("audit of update {}: worker 2 contradicts itself: rank gradient 1 of update {}",
                                       update, update)),
            std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("audit: worker 2 is evicted; its machine should be looked at"), std::string::npos);
}

TEST_F(AuditedJob, ASumThatIsWrongIsFound) {
  for (const int workers : {2, 3}) {
    const std::string name = std::to_string(workers);
    const std::string flip = "flip:worker=1,step=42,bit=1000,what=reduced";
    const test::Ended ended = wait(start(name, options(workers, 2, flip)), name);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), undisturbed());
    EXPECT_EQ(guilty(name), (Guilty{{1, 42}}));
  }
}

// With two workers there is no majority: each replays from the checkpoint.
TEST_F(AuditedJob, AStateThatIsWrongIsFoundByAReplay) {
  const int64_t update = update_with(0, 60);
  const test::Ended ended =
      wait(start("run", options(2, 1, fmt::format("flip:worker=2,step={},bit=20,what=parameter", update - 1))), "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(guilty("run"), (Guilty{{2, update}}));
  const std::vector<Json> found = verdicts("run");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].at("verdict"), "replay");
  EXPECT_NE(found[2].at("reason").get<std::string>().find("the state before update"), std::string::npos);
}

// The state is damaged before its checkpoint is made (run.checkpoint_every = 40), in the part that the damaged worker
// saves: the run must never continue from that checkpoint. With three workers the others are a majority.
TEST_F(AuditedJob, AStateThatIsWrongIsNeverACheckpoint) {
  const std::string flip = "flip:worker=1,step=40,bit=27,what=parameter";
  for (const int workers : {2, 3}) {
    const std::string name = std::to_string(workers);
    const test::Ended ended = wait(start(name, options(workers, 1, flip)), name);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), undisturbed());
    EXPECT_EQ(guilty(name), (Guilty{{1, 41}}));
    EXPECT_EQ(verdicts(name).size(), workers == 2 ? 3u : 2u);
  }
  // Without an audit the members notice that they differ, but not which one is right.
  const std::vector<std::string> unaudited = {"--workers", "2", "--chaos", flip};
  const test::Ended ended = wait(start("run", unaudited), "run");
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("the members differ after step 40"), std::string::npos) << ended.err;
  EXPECT_EQ(newest_checkpoint("run"), 0);
  EXPECT_EQ(run_through("run", {"--workers", "2", "--resume"}), "");
}

TEST_F(AuditedJob, WhatAnOptimizerKeepsIsPartOfTheState) {
  const std::vector<std::string> momentum = {"--set", "optimizer.momentum=0.9"};
  ASSERT_EQ(wait(start("clean", momentum), "clean").code, 0);
  std::vector<std::string> more = options(3, 1, "flip:worker=3,step=80,bit=5,what=optimizer");
  more.insert(more.end(), momentum.begin(), momentum.end());
  const test::Ended ended = wait(start("run", more), "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), ledger("clean"));
  EXPECT_EQ(guilty("run"), (Guilty{{3, 81}}));
}

TEST_F(AuditedJob, OneThatIsAloneCannotGoOn) {
  const int64_t update = update_with(0, 50);
  const test::Ended ended =
      wait(start("run", options(1, 1, fmt::format("flip:worker=1,step={},bit=27", update))), "run");
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find(fmt::format("the audit of update {} found a fault", update)), std::string::npos)
      << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(10)), "");
  std::vector<std::string> again = options(1, 1, "");
  again.push_back("--resume");
  EXPECT_EQ(run_through("run", again), "");
}

TEST_F(AuditedJob, WithoutFaultsNothingIsFound) {
  for (const char* workers : {"1", "4"}) {
    EXPECT_EQ(run_through(workers, options(std::atoi(workers), 1, "")), "");
    EXPECT_TRUE(verdicts(workers).empty());
  }
}

// ELINVAR_AUDITS sets the number of runs (`tools/soak --audits` does 100), ELINVAR_CHAOS_SEED the first. Flips in
// audited data must be found, and no other worker blamed.
TEST_F(AuditedJob, RandomFlipsAreFoundWhereTheyAreAudited) {
  const int64_t count = test::from_environment("ELINVAR_AUDITS", 4),
                first = test::from_environment("ELINVAR_CHAOS_SEED", 0);
  const bool soak = std::getenv("ELINVAR_AUDITS") != nullptr;
  int64_t hits = 0, others = 0;
  for (int64_t n = 0; n < count; ++n) {
    std::mt19937_64 random(static_cast<uint64_t>(first + n));
    const auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int workers = static_cast<int>(pick(2, 4));
    const int64_t every = pick(1, 2);
    std::string chaos;
    int64_t update = 5;
    for (int64_t flips = std::min<int64_t>(pick(1, 2), workers - 1); flips > 0; --flips) {
      // Mostly in audited data.
      const int vrank = static_cast<int>(pick(0, kVranks - 1));
      const bool sum = pick(0, 3) == 0;
      update = update_with(vrank, update + pick(5, 50), every) + (pick(0, 5) == 0);
      chaos +=
          fmt::format("{}flip:worker={},step={},bit={}{}", chaos.empty() ? "" : ";",
                      sum ? 1 : std::min(workers, vrank + 1), update, pick(0, 1 << 20), sum ? ",what=reduced" : "");
    }
    const std::string name = fmt::format("run{}", n);
    SCOPED_TRACE(fmt::format("seed {}, {} workers, every {}, {}", first + n, workers, every, chaos));
    const test::Ended ended = wait(start(name, options(workers, every, chaos)), name, std::chrono::seconds(60));
    EXPECT_EQ(ended.code, 0) << ended.err;

    const AuditOptions audit{.every = every, .seed = kSeed};
    Guilty expected;
    int64_t right = kSteps;  // updates
    for (const Json& flip : events(name, "bit")) {
      const int64_t at = flip.at("step");
      const bool hit = audited(audit, at - 1) &&
                       (flip.at("what") == "reduced" || flip.at("vrank") == audited_vrank(audit, at - 1, kVranks));
      if (hit) expected.emplace_back(flip.at("worker"), at);
      else right = std::min(right, at - 1);
      ++(hit ? hits : others);
    }
    EXPECT_EQ(guilty(name), expected);
    const std::vector<std::string> clean = test::lines_of(undisturbed()), mine = test::lines_of(ledger(name));
    ASSERT_EQ(clean.size(), mine.size());
    for (size_t line = 0; line < clean.size() - static_cast<size_t>(kSteps - right); ++line)
      EXPECT_EQ(clean[line], mine[line]);
    if (soak)
      fmt::print(stderr, "run {} of {}, seed {}: {} flips found, {} where nothing is audited, so far{}\n", n + 1, count,
                 first + n, hits, others, HasFailure() ? ", FAILED" : "");
    fs::remove_all(folder_ / name);
    if (HasFailure()) break;
  }
  EXPECT_GT(hits, count / 2);
}

}  // namespace
}  // namespace elinvar
