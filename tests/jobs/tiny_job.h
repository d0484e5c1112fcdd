#pragma once
// A job with steps of about a millisecond, for tests of elasticity with real processes and faults. It has batch norm,
// dropout, short batches at the end of each epoch that leave virtual ranks without samples, checkpoints and digests of
// the state.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "elastic/ledger/ledger.h"
#include "tests/jobs/train_process.h"
#include "tests/support/lines.h"

namespace elinvar::test {

class TinyJob : public testing::Test, protected TrainRuns {
 protected:
  static constexpr int64_t kSteps = 150, kSamples = 22, kBatch = 3;  // with three virtual ranks

  // More lines of these tables, and another network (SmallJob).
  explicit TinyJob(std::string run = {}, std::string optimizer = {}, std::string network = {})
      : run_(std::move(run)), optimizer_(std::move(optimizer)), network_(std::move(network)) {}
  void SetUp() override;
  // Starts `train run` of the job in the folder NAME, with further options.
  pid_t start(const std::string& name, const std::vector<std::string>& more = {},
              const std::vector<std::string>& before = {}) const;
  // Returns the ledger of one undisturbed worker.
  const std::string& undisturbed() const { return undisturbed_; }
  std::vector<LedgerLine> steps(const std::string& name) const;
  // Runs to the end, resuming whenever the coordinator or all workers were killed, or all workers have left. Returns
  // what was wrong, or "". Ledger and digests must be the undisturbed ones, and every process must end.
  std::string run_through(const std::string& name, std::vector<std::string> options) const;
  // Returns the events of a run that have this field.
  std::vector<nlohmann::json> events(const std::string& name, const std::string& field) const;
  // Returns the data plane of each generation, in the order of events.jsonl: "nccl: what it carries", or "host:
  // reason".
  std::vector<std::string> planes(const std::string& name) const;
  // Runs the job for `steps` steps on two workers of the first card, which NCCL takes for those of two hosts, and
  // compares the ledger with that of one worker on the CPU. Returns false if there is no card, or no NCCL.
  bool run_on_a_card(const std::string& name, std::vector<std::string> options, int64_t steps) const;
  int64_t newest_checkpoint(const std::string& name) const;  // its step; 0: none
  // Returns the samples that each step read, derived from the ledger alone: it has digests of the virtual ranks'
  // inputs, and there are few enough samples to try all possible batches. Returns {} and fails the test if none
  // matches.
  std::vector<std::vector<int64_t>> consumed(const std::string& name) const;
  // Checks that each epoch has each sample once, in whole batches except for the last.
  void expect_each_sample_once_an_epoch(const std::vector<std::vector<int64_t>>& consumed) const;

 private:
  const std::string run_, optimizer_, network_;
  std::string undisturbed_;
};

}  // namespace elinvar::test
