#pragma once
// A job whose steps take about a millisecond, run through whatever happens to it; for tests of elasticity with real
// processes. It has batch norm, dropout, short batches at the end of each epoch that leave virtual ranks without
// samples, checkpoints and digests of the state.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "elastic/ledger/ledger.h"
#include "tests/jobs/train_process.h"

namespace elinvar::test {

std::vector<std::string> lines_of(const std::string& text);

class TinyJob : public testing::Test, protected TrainRuns {
 protected:
  static constexpr int64_t kSteps = 150, kSamples = 22, kBatch = 3;  // and three virtual ranks

  void SetUp() override;
  // `train run` of the job in the folder NAME, with further options.
  pid_t start(const std::string& name, const std::vector<std::string>& more = {},
              const std::vector<std::string>& before = {}) const;
  // The ledger of one undisturbed worker.
  const std::string& undisturbed() const { return undisturbed_; }
  std::vector<LedgerLine> steps(const std::string& name) const;
  // Runs to the end, resuming as often as coordinator or all workers were killed; what was wrong, or "". The ledger and
  // the digests beside it must be the undisturbed ones, and every process must end.
  std::string run_through(const std::string& name, std::vector<std::string> options) const;
  // Events of a run that have this field.
  std::vector<nlohmann::json> events(const std::string& name, const std::string& field) const;
  int64_t newest_checkpoint(const std::string& name) const;  // its step; 0 without any
  // The samples that each step consumed, found from the ledger alone: it holds digests of the bytes that virtual ranks
  // read, and there are few enough samples to try all that a batch could be. Empty and a failed test if none fits.
  std::vector<std::vector<int64_t>> consumed(const std::string& name) const;
  // Each epoch dealt each sample once, in whole batches but for its last.
  void expect_each_sample_once_an_epoch(const std::vector<std::vector<int64_t>>& consumed) const;

 private:
  std::string undisturbed_;
};

}  // namespace elinvar::test
