#pragma once
// metrics.jsonl: numbers to plot, one line for each step and one for each validation. Speeds differ between equal runs;
// the facts are in the ledger.
//
//   {"step":12,"loss":2.302,"accuracy":0.11,"lr":0.1,"gradient_norm":1.7,"samples_per_second":5120.3,
//    "reduce_seconds":0.003,"leaf_seconds":[0.11,0.12],"workers":2,"generation":3,"goodput":0.987,
//    "time":"2026-05-04T10:11:12.345Z"}
//   {"step":12,"validation_loss":2.29,"validation_accuracy":0.12}
//
// Tasks whose targets are not right or wrong have no accuracy; a validation has the metrics of its task.
#include <filesystem>
#include <optional>
#include <vector>

#include "elastic/ledger/line_file.h"
#include "elastic/ledger/step_facts.h"
#include "tools/training/summary.h"

namespace elinvar {

struct StepMetrics {
  double loss = 0, lr = 0, gradient_norm = 0, items_per_second = 0;
  bool tokens = false;  // the unit that is counted: tokens or samples
  // From the first worker's last rank gradient to the sum; includes waiting for the other workers' gradients.
  double reduce_seconds = 0;
  // Time of one rank gradient on each member of the generation; 0: the member had none.
  std::vector<double> leaf_seconds = {};
  int64_t generation = 1;
  double goodput = 1;  // up to this step (elastic/ledger/goodput.h)
  double ago = 0;      // seconds since the step was done
  std::optional<double> accuracy = {};
};

// Returns the same numbers for TensorBoard.
Summary summary_of(const StepMetrics& metrics);
Summary summary_of(const ValidationScore& validation);

class Metrics {
 public:
  // Continues after `step`. Drops lines of later steps, which an earlier part of the run left before a resume.
  Metrics(const std::filesystem::path& directory, int64_t step);

  void step(int64_t step, const StepMetrics& metrics);
  void validation(int64_t step, const ValidationScore& score);
  void write() { file_.write(); }  // afterwards all added lines are in the file
  bool restore() { return file_.restore(); }
  int64_t last_validation() const { return last_validation_; }  // the step of the last validation; 0 if there is none

 private:
  LineFile file_;
  int64_t last_validation_ = 0;
};

}  // namespace elinvar
