#pragma once
// metrics.jsonl: numbers to plot, a line a step and one for each validation. Speeds differ between equal runs; the
// facts are in the ledger.
//
//   {"step":12,"loss":2.302,"accuracy":0.11,"lr":0.1,"gradient_norm":1.7,"samples_per_second":5120.3,
//    "reduce_seconds":0.003,"leaf_seconds":[0.11,0.12],"workers":2,"generation":3,"goodput":0.987,
//    "time":"2026-05-04T10:11:12.345Z"}
//   {"step":12,"validation_loss":2.29,"validation_accuracy":0.12}
#include <filesystem>
#include <vector>

#include "elastic/ledger/line_file.h"
#include "tools/training/job.h"
#include "tools/training/summary.h"

namespace elinvar {

struct StepMetrics {
  double loss = 0, accuracy = 0, lr = 0, gradient_norm = 0, items_per_second = 0;
  bool tokens = false;        // what is counted: tokens, or samples
  double reduce_seconds = 0;  // from the first worker's last leaf to the sum, and so also of waiting for the others'
  std::vector<double> leaf_seconds = {};  // that one leaf took each member of the generation; 0: it had none
  int64_t generation = 1;
  double goodput = 1;  // so far: elastic/ledger/goodput.h
  double ago = 0;      // seconds since the step was done
};

// The same for TensorBoard.
Summary summary_of(const StepMetrics& metrics);
Summary summary_of(const Score& validation);

class Metrics {
 public:
  // Goes on after `step`: lines of later steps, from before a resume, are dropped.
  Metrics(const std::filesystem::path& directory, int64_t step);

  void step(int64_t step, const StepMetrics& metrics);
  void validation(int64_t step, const Score& score);
  void write() { file_.write(); }  // what came since then is in the file
  bool restore() { return file_.restore(); }
  int64_t last_validation() const { return last_validation_; }  // its step; 0 if there is none

 private:
  LineFile file_;
  int64_t last_validation_ = 0;
};

}  // namespace elinvar
