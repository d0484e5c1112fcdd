// Interpretation of exit codes and ends of logs.
#include "tools/pool/daemon/exit_report.h"

#include <gtest/gtest.h>

namespace elinvar::pool {
namespace {

TEST(PoolExitReport, FindsTheLastMessageOfTrain) {
  EXPECT_EQ(last_message(""), "");
  EXPECT_EQ(last_message("one\ntwo\n\n"), "two");
  EXPECT_EQ(last_message("train: no folder data\nsrun: error: node1: task 0: Exited with exit code 2\n"),
            "train: no folder data");
  EXPECT_EQ(last_message("x\ntrain: first\ny\ntrain: second\nConnection closed.\n"), "train: second");
  EXPECT_EQ(exit_text(3), "ended with exit code 3");
  EXPECT_EQ(exit_text(137), "was killed by signal 9");
  EXPECT_EQ(exit_text(kUnknownExit), "is gone");
  EXPECT_TRUE(out_of_memory("train: out of memory: asked for 100 bytes"));
  EXPECT_FALSE(out_of_memory("train: no folder data"));
}

TEST(PoolExitReport, ALostLedgerIsForEverAndADamagedCheckpointIsNot) {
  const std::string lost =
      "training\ntrain: cannot resume run: no checkpoint is good\n"
      "  checkpoint of step 300 cannot be used: ledger.jsonl ends at step 0\nslurmstepd: error\n";
  EXPECT_EQ(
      lost_ledger(kRunFailure, lost),
      "train: cannot resume run: no checkpoint is good; checkpoint of step 300 cannot be used: ledger.jsonl ends at "
      "step 0");
  EXPECT_FALSE(lost_ledger(1, lost)) << "another exit code";
  EXPECT_TRUE(lost_ledger(kRunFailure, "train: run/ledger.jsonl ends before step 7, which an earlier coordinator had"));
  EXPECT_FALSE(lost_ledger(kRunFailure,
                           "train: cannot resume run: no checkpoint is good\n  checkpoint of step 300: "
                           "Input/output error\n"));
  EXPECT_FALSE(lost_ledger(kRunFailure, lost + "train: the job has ended\n")) << "an earlier message";
}

}  // namespace
}  // namespace elinvar::pool
