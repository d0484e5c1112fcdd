#include "elastic/run/facts_recorder.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// A run of four updates; the digest of the state is due after two, and at the end.
struct Recorder : FactsRecorder {
  explicit Recorder(const fs::path& folder) : FactsRecorder({.directory = folder, .state_digest_every = 2}) {
    begin({}, {}, 4);
  }
};

StepFacts facts(int64_t step, bool state = true) {
  const auto number = static_cast<uint64_t>(step);
  StepFacts facts{.step = step, .report = {.lr = 0.5}};
  if (step < 4)
    facts.update = UpdateFacts{.batch = {1, number}, .loss = 2, .leaves = {{0, {3, number}}}, .gradient = {2, number}};
  if (state && step > 0 && step % 2 == 0) facts.state = Digest{4, number};
  return facts;
}

TEST(FactsRecorder, WritesStepsInOrderHoweverTheyCome) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "run");
  Recorder recorder(folder / "run");
  EXPECT_EQ(recorder.record({facts(1)}), -1);
  EXPECT_EQ(recorder.missing_step(), 1) << "the second update is known, the first is not";
  EXPECT_EQ(recorder.record({facts(0)}), 0) << "the line of the second waits for the digest of its state";
  EXPECT_EQ(recorder.missing_step(), std::nullopt);
  EXPECT_EQ(recorder.record({facts(2)}), 2);
  EXPECT_EQ(recorder.recorded(), 3);
  EXPECT_EQ(recorder.line(2).state, (Digest{4, 2}));
  EXPECT_EQ(recorder.line(1).state, std::nullopt);
}

TEST(FactsRecorder, ARepetitionIsOneLineAndAnotherWordIsAContradiction) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "run");
  Recorder recorder(folder / "run");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(recorder.record({facts(0)}), 0);
  EXPECT_EQ(recorder.recorded(), 1);
  StepFacts other = facts(0);
  other.update->loss = 3;
  EXPECT_THROW(recorder.record({other}), Failure);
  EXPECT_NE(recorder.ledger().contradiction(), "");
  other.step = 9;
  EXPECT_THROW(recorder.record({other}), UsageError) << "the run has four steps";
}

// A checkpoint may report the digest of a state before the facts of the next step do.
TEST(FactsRecorder, AStateThatIsKnownOtherwiseCompletesItsLine) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "run");
  Recorder recorder(folder / "run");
  recorder.record({facts(0), facts(1)});
  EXPECT_EQ(recorder.recorded(), 1);
  EXPECT_EQ(recorder.states().at(2), std::nullopt);
  recorder.know_state(2, {4, 2}, {});
  EXPECT_EQ(recorder.recorded(), 2);
  EXPECT_EQ(recorder.states().at(2), (Digest{4, 2}));
}

TEST(FactsRecorder, ALedgerThatIsExpectedDecides) {
  const test::TemporaryFolder folder;
  for (const char* run : {"a", "b"}) fs::create_directories(folder / run);
  Recorder first(folder / "a");
  for (int64_t step = 0; step <= 4; ++step) first.record({facts(step)});
  EXPECT_EQ(first.recorded(), 4);
  first.sync();
  Recorder again(folder / "b");
  again.expect(ledger_steps(folder / "a" / "ledger.jsonl"));
  EXPECT_EQ(again.ledger().known(), 4);
  again.record({facts(0)});
  StepFacts other = facts(1);
  other.update->gradient = {9, 9};
  EXPECT_THROW(again.record({other, facts(2)}), Failure);
  EXPECT_EQ(again.recorded(), 1) << "what was true is on file";
}

TEST(FactsRecorder, ForgetsWhatIsAheadOfTheLedger) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "run");
  Recorder recorder(folder / "run");
  recorder.record({facts(0), facts(2)});
  EXPECT_EQ(recorder.missing_step(), 2);
  EXPECT_EQ(recorder.states().at(2), (Digest{4, 2}));
  recorder.forget_what_is_ahead();
  EXPECT_EQ(recorder.missing_step(), std::nullopt);
  EXPECT_EQ(recorder.states().at(2), std::nullopt);
}

}  // namespace
}  // namespace elinvar
