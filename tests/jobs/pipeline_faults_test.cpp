// Faults in jobs whose workers are stages of pipelines: what tensor_parallel_faults_test.cpp does not have for all
// arrangements alike.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "tests/jobs/division_faults.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;
using test::Division;
using test::Ended;
using test::every_fault;

class PipelineFaults : public test::DivisionFaults {};

// After the last update members agree on its state and score the validation split, each stage some virtual ranks.
TEST_F(PipelineFaults, AWorkerMayDieInTheLastRound) {
  int number = 0;
  for (const Division& division : {Division{.tp = 1, .pp = 3},
                                   {.tp = 2, .pp = 2, .zero = 1},
                                   {.dp = 2, .tp = 1, .pp = 2, .zero = 2},
                                   {.tp = 1, .pp = 2, .zero = 1, .copies = 1}})
    for (const char* const dies :
         {"worker=2,step=151,at=part", "worker=0,step=151,at=trailer", "worker=2,step=150,at=update",
          "worker=0,step=150,at=update", "worker=1,step=150,at=boundary"}) {
      if (++number % 7 != 1 && !every_fault()) continue;
      const std::string name = fmt::format("{}-{}", division.name(), number);
      SCOPED_TRACE(fmt::format("{}, {}", division.name(), dies));
      const std::string chaos = fmt::format("kill:{}", dies);
      EXPECT_EQ(run_through(name, options(division, chaos, {"--set", "run.eval_every=50"})), "");
      EXPECT_EQ(count(name, "kill"), 1u);
      if (HasFailure()) return;
    }
}

// Values that were sent are void, those of the dead and those of the others; and a newcomer may be any stage. It is
// started before, and the job holds until it is there.
TEST_F(PipelineFaults, EachStageMayDieBetweenItsPassesAgainAndAgain) {
  const int deaths = every_fault() ? 12 : 4;
  std::string chaos;
  for (int i = 1; i <= deaths; ++i)
    chaos +=
        fmt::format("{}kill:worker={},step={},at=boundary;join:step={}", i > 1 ? ";" : "", i, 12 * i - 1, 12 * i - 6);
  for (const Division& division :
       {Division{.tp = 1, .pp = 3}, {.tp = 2, .pp = 2, .zero = 2}, {.dp = 2, .tp = 1, .pp = 2, .zero = 1}}) {
    const std::string name = division.name();
    EXPECT_EQ(run_through(name, division.complete({"--set", "run.audit_every=3", "--chaos", chaos})), "");
    EXPECT_EQ(count(name, "kill"), static_cast<size_t>(deaths));
    EXPECT_EQ(count(name, "state_lost"), 0u);
    EXPECT_TRUE(events(name, "verdict").empty());
    if (!every_fault()) break;
  }
}

// Whoever resumes the run need not know how those computed who have died.
TEST_F(PipelineFaults, OtherArrangementsGoOnWhereAllHaveDied) {
  const Division parts[] = {{.tp = 1, .pp = 3},
                            {.tp = 3, .zero = 1},
                            {.tp = 2, .pp = 2, .zero = 2, .copies = 1},
                            {.dp = 2, .tp = 1, .pp = 2}};
  int64_t dies = 5;
  for (const Division& part : parts) {
    dies += 40;  // some steps after a checkpoint
    const std::string chaos = fmt::format("kill:all,step={}", dies);
    Words more = {"--min-workers", std::to_string(part.workers())};  // none of them comes after the others died
    if (dies > 45) more.emplace_back("--resume");
    const Ended ended = wait(start("run", options(part, chaos, more)), "run");
    EXPECT_EQ(ended.code == 0, dies > kSteps) << ended.err;
  }
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(digests("run"), digests("whole"));
}

// A wrong sum is found in an update in which its bucket is audited. Which buckets a worker adds up depends on the
// segments that it computes, so it makes one wrong sum in each update. It is evicted unless the sums are right when
// they are made again; nobody else is.
TEST_F(PipelineFaults, WrongSumsAreFoundAndOnlyTheirWorkerIsEvicted) {
  constexpr int64_t kFirst = 41;
  std::string flips;
  for (int64_t update = kFirst; update < kSteps; ++update)
    flips += fmt::format("{}flip:worker=1,step={},bit=27,what=reduced", update > kFirst ? ";" : "", update);
  for (const Division& division : {Division{.tp = 1, .pp = 2}, {.tp = 2, .pp = 2}, {.dp = 2, .tp = 1, .pp = 2}}) {
    const std::string name = division.name();
    SCOPED_TRACE(name);
    const Ended ended = wait(start(name, options(division, flips, {"--set", "run.audit_every=1"})), name);
    EXPECT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> verdicts = events(name, "verdict");
    ASSERT_GE(verdicts.size(), 2u);
    for (size_t i = 0; i < verdicts.size(); ++i) {
      const std::string verdict = verdicts[i].at("verdict");
      if (i % 2 == 0) EXPECT_EQ(verdict, "all compute it again");
      else if (verdict == "guilty") EXPECT_EQ(verdicts[i].at("workers"), Json{1});
      else EXPECT_EQ(verdict, "agreed");
    }
    const std::vector<std::string> right = test::lines_of(undisturbed()), found = test::lines_of(ledger(name));
    ASSERT_EQ(found.size(), right.size());
    for (size_t line = 0; line < size_t{kFirst}; ++line) EXPECT_EQ(found[line], right[line]);
    if (!every_fault()) break;
  }
}

}  // namespace
}  // namespace elinvar
